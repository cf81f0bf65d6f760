//! What the included sources name and no model needs to have in full.

pub(crate) mod clock {
    /// Nanoseconds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Moment(pub(crate) u64);

    impl Moment {
        pub(crate) fn plus(self, duration: std::time::Duration) -> Self {
            Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
        }
    }

    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Clock;

    impl Clock {
        pub(crate) fn now(self) -> Moment {
            Moment(1)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Deadline;

    impl Deadline {
        pub(crate) fn new(_: Moment, _: Clock) -> Self {
            Self
        }
    }
}

pub(crate) mod error {
    #[derive(Debug, Clone)]
    pub(crate) enum Error {
        Closed {},
    }

    impl Error {
        pub(crate) fn closed() -> Self {
            Self::Closed {}
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum LossReason {
        Expired,
        ForceUnlocked,
        TakenOver,
        ServerLostData,
        Removed,
        MaxHold,
        ClientShutdown,
        Forked,
    }
}

pub(crate) mod name {
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct LockName;
}

pub(crate) mod process {
    use crate::error::Error;

    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Process;

    /// No model forks.
    impl Process {
        pub(crate) fn current() -> Self {
            Self
        }

        pub(crate) fn is_current(self) -> bool {
            true
        }

        pub(crate) fn check(self) -> Result<(), Error> {
            Ok(())
        }
    }
}

pub(crate) mod owner {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct OwnerKey;
}

pub(crate) mod config {
    #[derive(Debug)]
    pub(crate) struct Config {
        pub(crate) client_id: u8,
    }
}

pub(crate) mod stats {
    #[derive(Debug, Default)]
    pub(crate) struct Counters;
}

pub(crate) mod engine {
    pub(crate) mod event {
        use std::sync::Arc;

        use crate::error::Error;

        #[derive(Debug, Default)]
        pub(crate) struct Fates;

        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct RequestId(pub(crate) u64);

        #[derive(Debug, Clone)]
        #[expect(dead_code, reason = "carried, and looked at by nobody here")]
        pub(crate) enum Answer {
            Granted(u64),
            Done,
            ShutDown(Arc<Fates>),
            Failed(Error),
        }

        #[derive(Debug)]
        #[expect(dead_code, reason = "carried, and looked at by nobody here")]
        pub(crate) enum Event {
            Ping { request: RequestId },
            Cancel { request: RequestId },
            PickedUp { request: RequestId },
            Withdrawn { request: RequestId },
        }
    }
}

pub(crate) mod map {
    pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Hasher>;
    pub(crate) type Hasher = std::hash::RandomState;
}

pub(crate) mod drive {
    use std::sync::Arc;
    use std::task::Context;
    use std::time::Duration;

    use crate::error::Error;

    #[derive(Debug)]
    pub(crate) struct Drive;

    /// The runtimes of the models are driven.
    impl Drive {
        pub(crate) fn watch(self: &Arc<Self>, _: Option<Duration>) -> Option<Watched> {
            None
        }
    }

    #[derive(Debug)]
    pub(crate) struct Watched;

    impl Watched {
        pub(crate) fn stalled(&self, _: &Context<'_>) -> Option<Error> {
            None
        }
    }
}

pub(crate) mod background {
    /// Nothing runs behind the callers of the models.
    #[derive(Debug)]
    pub(crate) struct Background;
}

pub(crate) mod settle {
    use std::sync::Arc;

    /// The threads of the models wait for nothing when they end.
    pub(crate) fn note<T>(_: &Arc<T>) {}
}
