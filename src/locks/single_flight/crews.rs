//! The callers of one client that want the same value: one of them, the pilot, deals with the lock,
//! and the others wait for what it finds.
//!
//! The role of the pilot is a value. When that is dropped, whatever the reason, the role passes on
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

/// The crews of the names that are in use.
type OpenCrews = HashMap<Key, Box<dyn Any + Send>>;

/// All crews of a client. There is a crew while there is a pilot.
#[derive(Clone)]
pub(crate) struct Crews {
    open: Arc<Mutex<OpenCrews>>,
    /// In a child made by `fork`, a thread that is not in it may have locked the mutex.
    process: Process,
}

/// The callers that wait for a pilot.
struct Crew<T: Send + 'static> {
    waiting: VecDeque<oneshot::Sender<Role<T>>>,
    /// Those that came since the crew was closed. They are not served.
    later: VecDeque<oneshot::Sender<Role<T>>>,
    closed: bool,
}

/// What becomes of a caller.
pub(super) enum Role<T: Send + 'static> {
    /// It deals with the lock from the beginning.
    Pilot(Pilot<T>),
    /// It deals with the lock from now on, after another that got no value.
    Heir(Pilot<T>),
    /// The pilot has the value, or the error of the lock.
    Served(Result<T, Error>),
}

/// The duty to deal with the lock.
pub(super) struct Pilot<T: Send + 'static> {
    duty: Option<Duty<T>>,
}

struct Duty<T> {
    crews: Crews,
    key: Key,
    of: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Default for Crew<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), later: VecDeque::new(), closed: false }
    }
}

impl Crews {
    pub(crate) fn new() -> Self {
        Self { open: Arc::default(), process: Process::current() }
    }

    /// Becomes the pilot if there is none.
    pub(super) fn enter<T: Send + 'static>(&self, name: &LockName) -> Option<Pilot<T>> {
        let key = (name.clone(), TypeId::of::<T>());
        let mut open = self.lock();
        if open.contains_key(&key) {
            return None;
        }
        open.insert(key.clone(), Box::new(Crew::<T>::default()));
        drop(open);
        let duty = Duty { crews: self.clone(), key, of: PhantomData };
        Some(Pilot { duty: Some(duty) })
    }

    /// Becomes the pilot, or waits for the one that there is.
    pub(super) async fn join<T: Send + 'static>(&self, name: &LockName) -> Role<T> {
        loop {
            if let Some(pilot) = self.enter(name) {
                return Role::Pilot(pilot);
            }
            let Some(waiting) = self.follow(name) else { continue };
            // Without an answer the pilot has ended while it served: the caller begins anew.
            if let Ok(role) = waiting.await {
                return role;
            }
        }
    }

    fn follow<T: Send + 'static>(&self, name: &LockName) -> Option<oneshot::Receiver<Role<T>>> {
        let key = (name.clone(), TypeId::of::<T>());
        self.with(&key, |crew| {
            let (sender, receiver) = oneshot::channel();
            if crew.closed { &mut crew.later } else { &mut crew.waiting }.push_back(sender);
            receiver
        })
    }

    fn with<T: Send + 'static, R>(
        &self,
        key: &Key,
        with: impl FnOnce(&mut Crew<T>) -> R,
    ) -> Option<R> {
        let mut open = self.lock();
        open.get_mut(key)?.downcast_mut::<Crew<T>>().map(with)
    }

    fn lock(&self) -> MutexGuard<'_, OpenCrews> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Duty<T> {
    /// The next caller that waits. Without one the crew is gone.
    fn next(&self) -> Option<oneshot::Sender<Role<T>>> {
        let mut open = self.crews.lock();
        let crew = open.get_mut(&self.key)?.downcast_mut::<Crew<T>>()?;
        crew.waiting.append(&mut crew.later);
        crew.closed = false;
        let next = crew.waiting.pop_front();
        if next.is_none() {
            open.remove(&self.key);
        }
        next
    }
}

impl<T: Send + 'static> Pilot<T> {
    /// Who has come by now is served with what is found next, and nobody else.
    pub(super) fn close(&self) {
        self.with(|crew| {
            crew.waiting.append(&mut crew.later);
            crew.closed = true;
        });
    }

    /// Everybody is served with what is found next.
    pub(super) fn open(&self) {
        self.with(|crew| {
            crew.waiting.append(&mut crew.later);
            crew.closed = false;
        });
    }

    /// Serves the value to those that wait, and gives it back.
    pub(super) fn land(self, value: T) -> T
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
    pub(super) fn crash(self, error: Error) -> Error {
        for waiting in self.served() {
            let _ = waiting.send(Role::Served(Err(error.clone())));
        }
        error
    }

    fn served(&self) -> VecDeque<oneshot::Sender<Role<T>>> {
        self.with(|crew| std::mem::take(&mut crew.waiting)).unwrap_or_default()
    }

    fn with<R>(&self, with: impl FnOnce(&mut Crew<T>) -> R) -> Option<R> {
        let duty = self.duty.as_ref()?;
        duty.crews.with(&duty.key, with)
    }
}

impl<T: Send + 'static> Drop for Pilot<T> {
    fn drop(&mut self) {
        let Some(mut duty) = self.duty.take().filter(|duty| duty.crews.process.is_current()) else {
            return;
        };
        // A caller that has given up has no use for the role.
        while let Some(next) = duty.next() {
            match next.send(Role::Heir(Self { duty: Some(duty) })) {
                Err(Role::Heir(mut back)) => match back.duty.take() {
                    Some(again) => duty = again,
                    None => return,
                },
                _ => return,
            }
        }
    }
}

impl fmt::Debug for Crews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crews").finish_non_exhaustive()
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
        LockName::new("crew").unwrap()
    }

    fn pilot(crews: &Crews) -> Pilot<u32> {
        crews.enter(&name()).expect("there is none")
    }

    /// A caller that waits.
    fn follower(crews: &Crews) -> Joining {
        let crews = crews.clone();
        let mut joining: Joining = Box::pin(async move { crews.join(&name()).await });
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

    fn heir(joining: &mut Joining) -> Pilot<u32> {
        match poll(joining) {
            Some(Role::Heir(pilot)) => pilot,
            _ => panic!("no heir"),
        }
    }

    fn is_empty(crews: &Crews) -> bool {
        crews.lock().is_empty()
    }

    #[test]
    fn all_that_wait_are_served_and_nothing_is_left() {
        let crews = Crews::new();
        let first = pilot(&crews);
        assert!(crews.enter::<u32>(&name()).is_none());
        let mut waiting = [follower(&crews), follower(&crews)];
        assert_eq!(first.land(7), 7);
        waiting.iter_mut().for_each(|joining| assert_eq!(served(joining), 7));
        assert!(is_empty(&crews));
    }

    #[test]
    fn an_error_of_the_lock_is_everybodys() {
        let crews = Crews::new();
        let first = pilot(&crews);
        let mut waiting = follower(&crews);
        first.crash(Error::closed());
        assert!(matches!(poll(&mut waiting), Some(Role::Served(Err(Error::Closed { .. })))));
    }

    #[test]
    fn the_role_passes_on_in_order_past_those_that_have_given_up() {
        let crews = Crews::new();
        let first = pilot(&crews);
        let (gone, mut second, mut third) = (follower(&crews), follower(&crews), follower(&crews));
        drop(gone);
        drop(first);
        assert!(poll(&mut third).is_none());
        let next = heir(&mut second);
        drop(next);
        drop(heir(&mut third));
        assert!(is_empty(&crews));
    }

    /// The role was given to a caller that is dropped before it is polled again.
    #[test]
    fn a_role_that_nobody_takes_passes_on() {
        let crews = Crews::new();
        let first = pilot(&crews);
        let (second, mut third) = (follower(&crews), follower(&crews));
        drop(first);
        drop(second);
        drop(heir(&mut third));
        assert!(is_empty(&crews));
    }

    #[test]
    fn who_comes_after_the_crew_was_closed_is_not_served_but_next() {
        let crews = Crews::new();
        let first = pilot(&crews);
        let mut before = follower(&crews);
        first.close();
        let mut after = follower(&crews);
        first.land(7);
        assert_eq!(served(&mut before), 7);
        let next = heir(&mut after);
        let mut later = follower(&crews);
        next.land(8);
        assert_eq!(served(&mut later), 8, "the next one begins with an open crew");
        assert!(is_empty(&crews));
    }

    #[test]
    fn who_came_during_a_look_is_served_with_the_next() {
        let crews = Crews::new();
        let first = pilot(&crews);
        first.close();
        let mut waiting = follower(&crews);
        first.close();
        first.land(7);
        assert_eq!(served(&mut waiting), 7);
    }

    #[test]
    fn a_crew_that_is_opened_again_serves_all() {
        let crews = Crews::new();
        let first = pilot(&crews);
        first.close();
        let mut waiting = follower(&crews);
        first.open();
        first.land(7);
        assert_eq!(served(&mut waiting), 7);
    }

    #[test]
    fn values_of_another_type_have_a_crew_of_their_own() {
        let crews = Crews::new();
        let _numbers = pilot(&crews);
        assert!(crews.enter::<String>(&name()).is_some());
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
        let crews = Crews::new();
        let name = name();
        let first: Pilot<Picky> = crews.enter(&name).expect("there is none");
        let mut waiting = pin!(crews.join::<Picky>(&name));
        let cx = &mut Context::from_waker(noop_waker_ref());
        assert!(waiting.as_mut().poll(cx).is_pending());
        let landed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.land(Picky)));
        assert!(landed.is_err());
        assert!(matches!(waiting.as_mut().poll(cx), Poll::Ready(Role::Pilot(_))));
    }

    #[test]
    fn a_child_of_the_process_leaves_the_crews_alone() {
        let crews = Crews { process: Process::parent(), ..Crews::new() };
        let first = pilot(&crews);
        let mut waiting = follower(&crews);
        drop(first);
        assert!(poll(&mut waiting).is_none());
    }
}
