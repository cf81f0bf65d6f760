//! One task of a client: what it holds, and what it waits for.

use std::sync::Arc;

use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::RequestId;
use crate::kinds::share::Share;

#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) level: RequestId,
    pub(super) cell: Arc<HoldCell>,
    pub(super) share: Share,
    pub(super) owner: OwnerKey,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: RequestId,
    pub(super) acquire: Option<(Acquire, Moment)>,
    /// Its future is polled late, or never.
    pub(super) lazy: bool,
    /// It downgrades this level.
    pub(super) downgrades: Option<RequestId>,
}

impl Pending {
    /// For an answer that is no grant.
    pub(super) fn ask(request: RequestId) -> Self {
        Self { request, acquire: None, lazy: false, downgrades: None }
    }
}

/// One task. Two tasks of a client may share an owner, as the branches of a `join!` do.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) owner: OwnerKey,
    pub(super) pending: Option<Pending>,
    pub(super) guards: Vec<Guard>,
    /// How many steps it has done.
    pub(super) steps: u64,
}

impl Task {
    pub(super) fn new(client: usize, task: usize) -> Self {
        // The last two of four share an owner.
        let owner = if task == 3 { 2 } else { task };
        Self {
            owner: OwnerKey::Unique((1 + client * 100 + owner) as u64),
            pending: None,
            guards: Vec::new(),
            steps: 0,
        }
    }

    pub(super) fn is_lazy(&self, request: RequestId) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.request == request && pending.lazy)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_none() && self.guards.is_empty()
    }

    pub(super) fn show(&self) -> String {
        format!("{:?} {:?}", self.pending, self.guards)
    }
}
