//! Running something in a forked child.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::time::Duration;
use std::time::Instant;

/// What does not end within this time hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs this in a child, to its end. Panics if it panics there, or hangs. The child ends without
/// any of this process's destructors.
pub(crate) fn in_child(what: &str, work: impl FnOnce()) {
    // SAFETY: the child has this thread only. What it calls is what this program is there to try.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends this process, and nothing else happens in it.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => {
            let status = wait_for(child).unwrap_or_else(|| panic!("a child hangs: {what}"));
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "a child failed: {what}: {status}"
            );
        }
    }
}

fn wait_for(child: libc::pid_t) -> Option<libc::c_int> {
    let begin = Instant::now();
    let mut status = 0;
    while begin.elapsed() < PATIENCE {
        // SAFETY: `status` is a place for an int.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => std::thread::sleep(Duration::from_millis(1)),
            -1 => panic!("waitpid: {}", std::io::Error::last_os_error()),
            _ => return Some(status),
        }
    }
    // SAFETY: a child that this process has not waited for yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
    None
}
