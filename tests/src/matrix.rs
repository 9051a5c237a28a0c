//! One test for each driver and number of shards, so that a failure names its combination.
//!
//! Never skips in silence: where the kernel offers no io_uring, a test says so and notes its name for `scripts/test`.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::thread;

/// What a server runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// The value of `--driver`.
    pub driver: &'static str,
    /// The value of `--shards`.
    pub shards: u8,
}

impl Flavour {
    /// For what does not depend on driver or shards.
    pub const PLAIN: Self = Self { driver: "epoll", shards: 1 };
}

/// Runs a test on a flavour, if the kernel can.
pub fn run(flavour: Flavour, test: impl FnOnce(Flavour)) {
    if flavour.driver == "uring" && !uring_works() {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        eprintln!("NOT RUN: {name}: this kernel offers no io_uring");
        if let Some(path) = std::env::var_os("REJOIN_NOT_RUN") {
            let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the list of tests not run");
            writeln!(file, "{name}").expect("the list of tests not run");
        }
        return;
    }
    test(flavour);
}

/// Whether a ring can be made and entered here; the server's own probe is under test and is not asked.
fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| io_uring::IoUring::new(2).is_ok_and(|ring| ring.submit().is_ok()))
}

/// Makes each named function, which takes a [`Flavour`], four tests.
#[macro_export]
macro_rules! on_every_server {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            use $crate::matrix::{Flavour, run};

            #[test]
            fn uring_1_shard() {
                run(Flavour { driver: "uring", shards: 1 }, super::$test);
            }

            #[test]
            fn uring_2_shards() {
                run(Flavour { driver: "uring", shards: 2 }, super::$test);
            }

            #[test]
            fn epoll_1_shard() {
                run(Flavour { driver: "epoll", shards: 1 }, super::$test);
            }

            #[test]
            fn epoll_2_shards() {
                run(Flavour { driver: "epoll", shards: 2 }, super::$test);
            }
        }
    )+ };
}
