//! The callers of one client that want the same value: one of them, the delegate, deals with the lock,
//! and the others wait for what it finds.
//!
//! The role of the delegate is a value. When that is dropped, whatever the reason, the role passes on
//! to the caller that has waited longest.

use std::any::Any;
use std::any::TypeId;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::oneshot;

use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::process::Process;

/// A name, and the type of its value.
type Key = (LockName, TypeId);

/// The groups of the names that are in use.
type OpenGroups = HashMap<Key, Box<dyn Any + Send>>;

/// All groups of a client. There is a group while there is a delegate.
#[derive(Clone)]
pub(crate) struct CallerGroups {
    open: Arc<Mutex<OpenGroups>>,
    /// In a child made by `fork`, a thread that is not in it may have locked the mutex.
    process: Process,
}

/// The callers that wait for a delegate.
struct Group<T: Send + 'static> {
    waiting: VecDeque<oneshot::Sender<Role<T>>>,
    /// Those that came since the group was closed. They are not served.
    later: VecDeque<oneshot::Sender<Role<T>>>,
    closed: bool,
}

/// What becomes of a caller.
pub(super) enum Role<T: Send + 'static> {
    /// It deals with the lock from the beginning.
    Delegate(Delegate<T>),
    /// It deals with the lock from now on, after another that got no value.
    Successor(Delegate<T>),
    /// The delegate has the value, or the error of the lock.
    Served(Result<T, Error>),
}

/// The duty to deal with the lock.
pub(super) struct Delegate<T: Send + 'static> {
    duty: Option<Duty<T>>,
}

struct Duty<T> {
    groups: CallerGroups,
    key: Key,
    of: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Default for Group<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), later: VecDeque::new(), closed: false }
    }
}

impl<T: Send + 'static> Group<T> {
    /// Has all that have come wait for what is found next, and those that come later as well unless
    /// it is closed.
    fn gather(&mut self, closed: bool) {
        self.waiting.append(&mut self.later);
        self.closed = closed;
    }
}

impl CallerGroups {
    pub(crate) fn new() -> Self {
        Self { open: Arc::default(), process: Process::current() }
    }

    /// Becomes the delegate if there is none.
    pub(super) fn enter<T: Send + 'static>(&self, name: &LockName) -> Option<Delegate<T>> {
        let key = (name.clone(), TypeId::of::<T>());
        let mut open = self.lock();
        if open.contains_key(&key) {
            return None;
        }
        open.insert(key.clone(), Box::new(Group::<T>::default()));
        drop(open);
        let duty = Duty { groups: self.clone(), key, of: PhantomData };
        Some(Delegate { duty: Some(duty) })
    }

    /// Becomes the delegate, or waits for the one that there is.
    pub(super) async fn join<T: Send + 'static>(&self, name: &LockName) -> Role<T> {
        loop {
            if let Some(delegate) = self.enter(name) {
                return Role::Delegate(delegate);
            }
            let Some(waiting) = self.follow(name) else { continue };
            // Without an answer the delegate has ended while it served: the caller begins anew.
            if let Ok(role) = waiting.await {
                return role;
            }
        }
    }

    fn follow<T: Send + 'static>(&self, name: &LockName) -> Option<oneshot::Receiver<Role<T>>> {
        let key = (name.clone(), TypeId::of::<T>());
        self.with(&key, |group| {
            let (sender, receiver) = oneshot::channel();
            if group.closed { &mut group.later } else { &mut group.waiting }.push_back(sender);
            receiver
        })
    }

    fn with<T: Send + 'static, R>(
        &self,
        key: &Key,
        with: impl FnOnce(&mut Group<T>) -> R,
    ) -> Option<R> {
        let mut open = self.lock();
        open.get_mut(key)?.downcast_mut::<Group<T>>().map(with)
    }

    fn lock(&self) -> MutexGuard<'_, OpenGroups> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Duty<T> {
    /// The next caller that waits. Without one the group is gone.
    fn next(&self) -> Option<oneshot::Sender<Role<T>>> {
        let mut open = self.groups.lock();
        let group = open.get_mut(&self.key)?.downcast_mut::<Group<T>>()?;
        group.gather(false);
        let next = group.waiting.pop_front();
        if next.is_none() {
            open.remove(&self.key);
        }
        next
    }
}

impl<T: Send + 'static> Delegate<T> {
    /// The callers that have come by now are served with what is found next, and no others.
    pub(super) fn close(&self) {
        self.gather(true);
    }

    /// All callers are served with what is found next.
    pub(super) fn open(&self) {
        self.gather(false);
    }

    fn gather(&self, closed: bool) {
        self.with(|group| group.gather(closed));
    }

    /// Serves the value to those that wait, and gives it back.
    pub(super) fn serve(self, value: T) -> T
    where
        T: Clone,
    {
        for waiting in self.served() {
            // One that has given up needs none.
            let _ = waiting.send(Role::Served(Ok(value.clone())));
        }
        value
    }

    /// The same for an error of the lock, which all of them would meet.
    pub(super) fn fail(self, error: Error) -> Error {
        for waiting in self.served() {
            let _ = waiting.send(Role::Served(Err(error.clone())));
        }
        error
    }

    fn served(&self) -> VecDeque<oneshot::Sender<Role<T>>> {
        self.with(|group| std::mem::take(&mut group.waiting)).unwrap_or_default()
    }

    fn with<R>(&self, with: impl FnOnce(&mut Group<T>) -> R) -> Option<R> {
        let duty = self.duty.as_ref()?;
        duty.groups.with(&duty.key, with)
    }
}

impl<T: Send + 'static> Drop for Delegate<T> {
    fn drop(&mut self) {
        let Some(mut duty) = self.duty.take().filter(|duty| duty.groups.process.is_current())
        else {
            return;
        };
        // A caller that has given up has no use for the role.
        while let Some(next) = duty.next() {
            match next.send(Role::Successor(Self { duty: Some(duty) })) {
                Err(Role::Successor(mut back)) => match back.duty.take() {
                    Some(again) => duty = again,
                    None => return,
                },
                _ => return,
            }
        }
    }
}

impl fmt::Debug for CallerGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerGroups").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::Future;
    use std::pin::Pin;
    use std::pin::pin;
    use std::task::Context;
    use std::task::Poll;

    use futures::task::noop_waker_ref;

    type Joining = Pin<Box<dyn Future<Output = Role<u32>>>>;

    fn name() -> LockName {
        LockName::new("group").unwrap()
    }

    fn delegate(groups: &CallerGroups) -> Delegate<u32> {
        groups.enter(&name()).expect("there is none")
    }

    /// A caller that waits.
    fn follower(groups: &CallerGroups) -> Joining {
        let groups = groups.clone();
        let mut joining: Joining = Box::pin(async move { groups.join(&name()).await });
        assert!(poll(&mut joining).is_none());
        joining
    }

    fn poll(joining: &mut Joining) -> Option<Role<u32>> {
        match joining.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(role) => Some(role),
            Poll::Pending => None,
        }
    }

    fn served(joining: &mut Joining) -> u32 {
        match poll(joining) {
            Some(Role::Served(Ok(value))) => value,
            _ => panic!("not served"),
        }
    }

    fn successor(joining: &mut Joining) -> Delegate<u32> {
        match poll(joining) {
            Some(Role::Successor(delegate)) => delegate,
            _ => panic!("no successor"),
        }
    }

    fn is_empty(groups: &CallerGroups) -> bool {
        groups.lock().is_empty()
    }

    #[test]
    fn all_that_wait_are_served_and_nothing_is_left() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        assert!(groups.enter::<u32>(&name()).is_none());
        let mut waiting = [follower(&groups), follower(&groups)];
        assert_eq!(first.serve(7), 7);
        waiting.iter_mut().for_each(|joining| assert_eq!(served(joining), 7));
        assert!(is_empty(&groups));
    }

    #[test]
    fn an_error_of_the_lock_is_everybodys() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        let mut waiting = follower(&groups);
        first.fail(Error::closed());
        assert!(matches!(poll(&mut waiting), Some(Role::Served(Err(Error::Closed { .. })))));
    }

    #[test]
    fn the_role_passes_on_in_order_past_those_that_have_given_up() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        let (gone, mut second, mut third) =
            (follower(&groups), follower(&groups), follower(&groups));
        drop(gone);
        drop(first);
        assert!(poll(&mut third).is_none());
        let next = successor(&mut second);
        drop(next);
        drop(successor(&mut third));
        assert!(is_empty(&groups));
    }

    /// The role was given to a caller that is dropped before it is polled again.
    #[test]
    fn a_role_that_nobody_takes_passes_on() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        let (second, mut third) = (follower(&groups), follower(&groups));
        drop(first);
        drop(second);
        drop(successor(&mut third));
        assert!(is_empty(&groups));
    }

    #[test]
    fn who_comes_after_the_group_was_closed_is_not_served_but_next() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        let mut before = follower(&groups);
        first.close();
        let mut after = follower(&groups);
        first.serve(7);
        assert_eq!(served(&mut before), 7);
        let next = successor(&mut after);
        let mut later = follower(&groups);
        next.serve(8);
        assert_eq!(served(&mut later), 8, "the next one begins with an open group");
        assert!(is_empty(&groups));
    }

    #[test]
    fn who_came_during_a_look_is_served_with_the_next() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        first.close();
        let mut waiting = follower(&groups);
        first.close();
        first.serve(7);
        assert_eq!(served(&mut waiting), 7);
    }

    #[test]
    fn a_group_that_is_opened_again_serves_all() {
        let groups = CallerGroups::new();
        let first = delegate(&groups);
        first.close();
        let mut waiting = follower(&groups);
        first.open();
        first.serve(7);
        assert_eq!(served(&mut waiting), 7);
    }

    #[test]
    fn values_of_another_type_have_a_group_of_their_own() {
        let groups = CallerGroups::new();
        let _numbers = delegate(&groups);
        assert!(groups.enter::<String>(&name()).is_some());
    }

    #[test]
    fn a_value_that_cannot_be_shared_leaves_nobody_behind() {
        #[derive(Debug)]
        struct Picky;
        impl Clone for Picky {
            fn clone(&self) -> Self {
                panic!("not this one")
            }
        }
        let groups = CallerGroups::new();
        let name = name();
        let first: Delegate<Picky> = groups.enter(&name).expect("there is none");
        let mut waiting = pin!(groups.join::<Picky>(&name));
        let cx = &mut Context::from_waker(noop_waker_ref());
        assert!(waiting.as_mut().poll(cx).is_pending());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.serve(Picky)));
        assert!(outcome.is_err());
        assert!(matches!(waiting.as_mut().poll(cx), Poll::Ready(Role::Delegate(_))));
    }

    #[test]
    fn a_child_of_the_process_leaves_the_groups_alone() {
        let groups = CallerGroups { process: Process::parent(), ..CallerGroups::new() };
        let first = delegate(&groups);
        let mut waiting = follower(&groups);
        drop(first);
        assert!(poll(&mut waiting).is_none());
    }
}
