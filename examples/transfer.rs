//! Transfers between accounts, each of which needs two locks: all or none, without a deadlock although
//! every transfer names its accounts in an order of its own.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example transfer
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::MultiLock;

const ACCOUNTS: [&str; 3] = ["example:account:1", "example:account:2", "example:account:3"];

/// What the locks protect: a store that knows no transactions.
type Store = Arc<Mutex<BTreeMap<&'static str, i64>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(url).await?;
    let store: Store = Arc::new(Mutex::new(ACCOUNTS.map(|account| (account, 100)).into()));

    // Money goes round in both directions at once.
    let (mut transfers, pairs) = (Vec::new(), [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)]);
    for (from, to) in pairs.repeat(5) {
        let (client, store) = (client.clone(), Arc::clone(&store));
        transfers.push(tokio::spawn(transfer(client, store, ACCOUNTS[from], ACCOUNTS[to])));
    }
    let count = transfers.len();
    for transfer in transfers {
        transfer.await??;
    }
    let sum: i64 = store.lock().expect("no panic").values().sum();
    println!("{count} transfers done, and the accounts have {sum} together");
    println!("{}", client.shutdown(Duration::from_secs(5)).await?);
    Ok(())
}

async fn transfer(
    client: LockClient,
    store: Store,
    from: &'static str,
    to: &'static str,
) -> redis_reentrant_lock::Result<()> {
    let both = MultiLock::new([client.mutex(from)?.into(), client.mutex(to)?.into()])?;
    let work = async |_: &_| {
        // Without the locks, two transfers would read the same balance and one would be lost.
        let balance = |account| store.lock().expect("no panic")[account];
        let (had, has) = (balance(from), balance(to));
        tokio::time::sleep(Duration::from_millis(5)).await;
        store.lock().expect("no panic").extend([(from, had - 10), (to, has + 10)]);
    };
    both.with(work).await
}
