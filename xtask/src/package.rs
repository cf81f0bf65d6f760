//! `cargo xtask package`: what a publish would do, whether the published tests and examples build
//! from the published files alone, and whether the library compiles for other systems.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::test;

const NAME: &str = "redis-reentrant-lock";
const LIMIT: Duration = Duration::from_secs(900);
/// For which the library must compile, if the standard library for them is installed.
const OTHER_SYSTEMS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// True if the package could be published.
pub(crate) fn run() -> Result<bool, String> {
    println!("1 of 3: cargo publish --dry-run");
    let publish = cargo(&["publish", "--dry-run", "--allow-dirty", "--package", NAME]);
    if !process::run(publish, LIMIT, Echo::On)?.success {
        return Ok(false);
    }
    println!("2 of 3: the tests and examples in the package");
    if !check_published()? {
        return Ok(false);
    }
    println!("3 of 3: the library for other systems");
    for system in OTHER_SYSTEMS {
        if !is_installed(system) {
            println!("NOT CHECKED: {system}, whose standard library is not installed");
            continue;
        }
        println!("{system}");
        let check = cargo(&["check", "--package", NAME, "--lib", "--target", system]);
        if !process::run(check, LIMIT, Echo::On)?.success {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The tests and examples, outside the repository, whose files and settings they must not find.
fn check_published() -> Result<bool, String> {
    let directory = std::env::temp_dir().join(format!("xtask-package-{}", std::process::id()));
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let remove = directory.clone();
    let _cleanup = Cleanup::new(move || drop(fs::remove_dir_all(&remove)));
    let package = unpack(&directory)?;
    if package.join("src/sim").exists() || package.join("src/sim.rs").exists() {
        return Err("the simulation is in the package".into());
    }
    let target = std::path::absolute(crate::root().join("target/published"));
    let target = target.map_err(|error| error.to_string())?;
    let mut check = cargo(&["check", "--all-targets", test::FEATURES, "--features=blocking"]);
    check.current_dir(package).env("CARGO_TARGET_DIR", target);
    Ok(process::run(check, LIMIT, Echo::On)?.success)
}

/// Whether the compiler has a standard library for it.
fn is_installed(system: &str) -> bool {
    let mut command = Command::new("rustc");
    command.args(["--print", "target-libdir", "--target", system]).current_dir(crate::root());
    Path::new(&process::first_line(&mut command)).is_dir()
}

/// The package, as the registry would get it, unpacked.
fn unpack(directory: &Path) -> Result<PathBuf, String> {
    let pack = cargo(&["package", "--no-verify", "--allow-dirty", "--quiet", "--package", NAME]);
    let done = process::run(pack, LIMIT, Echo::Off)?;
    if !done.success {
        return Err(format!("cargo package: {}", done.output.trim_end()));
    }
    let made = crate::root().join("target/package");
    let stem = format!("{NAME}-{}", version()?);
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(made.join(format!("{stem}.crate"))).arg("-C").arg(directory);
    let done = process::run(tar, Duration::from_secs(60), Echo::Off)?;
    if done.success {
        Ok(directory.join(stem))
    } else {
        Err(format!("tar: {}", done.output.trim_end()))
    }
}

/// That of the library, whose manifest names it first.
fn version() -> Result<String, String> {
    let manifest = crate::root().join("Cargo.toml");
    let text = fs::read_to_string(&manifest)
        .map_err(|error| format!("{}: {error}", manifest.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("version = "));
    line.map(|version| version.trim_matches('"').to_owned())
        .ok_or_else(|| "Cargo.toml has no version".into())
}
