//! `cargo xtask load`: many holds, many waiters, many operations, many losses, on a private server.
//!
//! Processes of `proof/load` use the lock as anybody does; this side looks at the server. What
//! comes out is one line of JSON; its bars are in `reliability.rs`.

mod scenes;
pub(crate) mod worker;

use serde_json::Map;
use serde_json::Value;

use crate::servers;

use scenes::Stage;

/// Seconds of holding, pairs of lock and unlock, cancellations, holds that are lost in each way.
struct Size {
    holds: u64,
    seconds: u64,
    waiters: u64,
    pairs: u64,
    cancellations: u64,
    losses: u64,
}

const FULL: Size = Size {
    holds: 10_000,
    seconds: 60,
    waiters: 1_000,
    pairs: 1_000_000,
    cancellations: 100_000,
    losses: 1_000,
};
const QUICK: Size = Size {
    holds: 1_000,
    seconds: 10,
    waiters: 100,
    pairs: 20_000,
    cancellations: 2_000,
    losses: 100,
};

/// `--quick` is for trying it out: its figures meet no bar.
pub(crate) fn run(options: &[&str]) -> Result<bool, String> {
    let mut size = FULL;
    let mut only = None;
    match options {
        [] => {}
        ["--quick"] => size = QUICK,
        ["--only", scene] => only = Some(*scene),
        ["--quick", "--only", scene] => (size, only) = (QUICK, Some(*scene)),
        _ => return Err("load wants nothing, --quick, or --only holds|waiters|leak|losses".into()),
    }
    let stage = Stage { server: servers::find_or_install()?, program: worker::build()? };
    let mut figures = Map::new();
    let wanted = |scene: &str| only.is_none_or(|only| only == scene);
    if wanted("holds") {
        stage.holds(&size, &mut figures)?;
    }
    if wanted("waiters") {
        stage.waiters(&size, &mut figures)?;
    }
    if wanted("leak") {
        stage.leak(&size, &mut figures)?;
    }
    if wanted("losses") {
        stage.losses(&size, &mut figures)?;
    }
    // The part comes first, as in all such lines.
    println!("{{\"part\":\"load\",{}", Value::Object(figures).to_string().trim_start_matches('{'));
    Ok(true)
}
