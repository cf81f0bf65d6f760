//! That a private cluster does what tests of locks rely on.

use crate::support::redis_server::eventually;
use crate::support::topology::Topology;

#[test]
fn a_cluster_moves_slots_and_fails_over() {
    let mut cluster = Topology::cluster();
    let slot: u16 = cluster.ask(0, &["CLUSTER", "KEYSLOT", "key"]);
    let from = cluster.owner_of(slot, 0).unwrap();
    let to = (from + 1) % 3;
    let _: String = cluster.ask(from, &["SET", "key", "value"]);
    cluster.move_slot(slot, from, to);
    assert_eq!(cluster.ask::<String>(to, &["GET", "key"]), "value");

    let replica = cluster.replicas_of(to)[0];
    eventually("the replica has it", || {
        cluster.try_ask::<u64>(replica, &["DBSIZE"]).is_ok_and(|size| size == 1)
    });
    cluster.kill(to);
    let owner = cluster.wait_until_agreed(slot);
    assert_eq!(owner, replica);
    cluster.restart(to);
    eventually("it comes back as a replica", || cluster.replicas_of(replica) == [to]);
    cluster.cluster_failover(to, false);
    assert_eq!(cluster.wait_until_agreed(slot), to);
}
