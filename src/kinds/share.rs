//! How much of a name a hold has, or is to have.

/// An absolute amount, never "one more". What the parts mean is up to the kind of lock:
///
/// | kind            | `exclusive` | `shared`                                                     |
/// |-----------------|-------------|--------------------------------------------------------------|
/// | reentrant lock  | levels      | 0                                                            |
/// | read-write lock | writes      | reads                                                        |
/// | semaphore       | permits     | how many there are for this client, if nobody has set it     |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Share {
    pub(crate) exclusive: u32,
    pub(crate) shared: u32,
}

impl Share {
    /// Of a hold that is given up.
    pub(crate) const NOTHING: Self = Self { exclusive: 0, shared: 0 };
    /// What one level of a reentrant lock adds.
    pub(crate) const ONE: Self = Self::exclusive(1);

    /// What one read of a read-write lock adds.
    pub(crate) const READ: Self = Self { exclusive: 0, shared: 1 };

    /// Permits of a semaphore that has `number` of them for this client.
    pub(crate) const fn permits(permits: u32, number: u32) -> Self {
        Self { exclusive: permits, shared: number }
    }

    pub(crate) const fn exclusive(exclusive: u32) -> Self {
        Self { exclusive, shared: 0 }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            exclusive: self.exclusive.saturating_add(other.exclusive),
            shared: self.shared.saturating_add(other.shared),
        }
    }

    /// The same with shared parts in place of the exclusive ones.
    pub(crate) const fn downgraded(self) -> Self {
        Self { exclusive: 0, shared: self.total() }
    }

    /// Exclusive and shared together.
    pub(crate) const fn total(self) -> u32 {
        self.exclusive.saturating_add(self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_part_by_part_and_never_overflow() {
        let share = Share { exclusive: 2, shared: 3 };
        assert_eq!(share.plus(Share::ONE), Share { exclusive: 3, shared: 3 });
        assert_eq!((share.total(), Share::NOTHING.total()), (5, 0));
        let most = Share { exclusive: u32::MAX, shared: u32::MAX };
        assert_eq!((most.plus(share), most.total()), (most, u32::MAX));
    }
}
