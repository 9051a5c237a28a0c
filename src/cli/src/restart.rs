//! The user's command that restarts the server under test.
//!
//! Never waits for it without a bound, and never stops anything but that command.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the command is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Runs it to its end, which must come by then. An error says what went wrong, in a line.
pub(crate) fn with(command: &str, until: Instant) -> Result<(), String> {
    let say = |why: String| format!("the restart command {command:?} {why}");
    let spawned = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| say(format!("did not start: {error}")))?;
    loop {
        match child.try_wait().map_err(|error| say(format!("cannot be waited for: {error}")))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(say(format!("failed: {status}"))),
            None if Instant::now() >= until => {
                // It is our child, and was not waited for: the number is its own.
                let _ = child.kill();
                let _ = child.wait();
                return Err(say("did not end in time: it must return once the server is up again".to_owned()));
            }
            None => thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_command_must_succeed_and_return_in_time() {
        let soon = || Instant::now() + Duration::from_millis(500);
        assert_eq!(with("exit 0", soon()), Ok(()));
        assert!(with("exit 3", soon()).is_err_and(|why| why.contains("failed") && why.contains('3')));
        let began = Instant::now();
        assert!(with("exec sleep 60", soon()).is_err_and(|why| why.contains("did not end")));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
