//! Java and Maven: found or installed, and the Java puppet built.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::interop::versions::Redisson;
use crate::process;
use crate::process::Echo;
use crate::servers;

const VERSION_LIMIT: Duration = Duration::from_secs(30);
const BUILD_LIMIT: Duration = Duration::from_secs(300);
const NEEDED: u32 = 17;

/// Packages of `java.base` that old versions look into, Netty's and codecs'.
const OPENED: &[&str] = &[
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.nio",
    "java.security",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
];

#[derive(Debug)]
pub(crate) struct Java {
    java: PathBuf,
    maven: PathBuf,
}

impl Java {
    /// With `install`, what is missing is installed if that is possible.
    pub(crate) fn find(install: bool) -> Result<Self, String> {
        Self::look().or_else(|reason| {
            if !install {
                return Err(reason);
            }
            println!("{reason}");
            servers::install_debian(&["openjdk-17-jdk-headless", "maven"])?;
            Self::look()
        })
    }

    fn look() -> Result<Self, String> {
        let program =
            |name: &str| process::find_program(name).ok_or_else(|| format!("{name} is missing"));
        let found = Self { java: program("java")?, maven: program("mvn")? };
        program("javac")?;
        match version(&found.java)? {
            version if version >= NEEDED => Ok(found),
            version => Err(format!("java is version {version}; {NEEDED} or later is needed")),
        }
    }

    /// Builds what is in a folder.
    pub(crate) fn package(&self, project: &Path, options: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.maven);
        command.current_dir(project).args(["-q", "-B", "package"]).args(options);
        let built = process::run(command, BUILD_LIMIT, Echo::Off)?;
        if built.success {
            return Ok(());
        }
        let output = built.output.trim_end();
        Err(format!("the Java program in {} does not build:\n{output}", project.display()))
    }

    /// The program that runs what was built.
    pub(crate) fn program(&self) -> &Path {
        &self.java
    }

    /// Builds the puppet with a version of Redisson, and gives what runs it.
    pub(crate) fn build(&self, redisson: &Redisson) -> Result<JavaPuppet, String> {
        let project = crate::root().join("tests/interop");
        self.package(&project, &[&format!("-Dredisson.version={}", redisson.version)])?;
        let target = project.join("target").join(redisson.version);
        let class_path = format!("{0}/classes:{0}/lib/*", target.display());
        Ok(JavaPuppet { java: self.java.clone(), class_path, log: target.join("puppet.log") })
    }
}

fn version(java: &Path) -> Result<u32, String> {
    let mut command = Command::new(java);
    command.arg("-version");
    let done = process::run(command, VERSION_LIMIT, Echo::Off)?;
    let number = done.output.split('"').nth(1).and_then(|version| version.split(['.', '-']).next());
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| format!("java -version: {}", done.output))
}

/// A puppet that is built.
#[derive(Debug, Clone)]
pub(crate) struct JavaPuppet {
    java: PathBuf,
    class_path: String,
    /// What all its processes write on standard error.
    log: PathBuf,
}

impl JavaPuppet {
    /// The command that runs it; its arguments are for the caller.
    pub(crate) fn command(&self) -> Result<Command, String> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| format!("{}: {error}", self.log.display()))?;
        let mut command = Command::new(&self.java);
        // The heap is small, and the compiler hurried, for the sake of the machine that the others
        // run on too.
        command.args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        for package in OPENED {
            command.arg("--add-opens").arg(format!("java.base/{package}=ALL-UNNAMED"));
        }
        command.arg("-cp").arg(&self.class_path).arg("interop.Puppet").stderr(log);
        Ok(command)
    }
}
