//! Prints each canary that a fuzz target must notice: the target, a space, the canary's name.

use rejoin_proto::canary::{Canary, Hunter};

fn main() {
    for canary in Canary::ALL {
        for hunter in canary.hunters() {
            if let Hunter::Fuzz(target) = hunter {
                println!("{target} {}", canary.name());
            }
        }
    }
}
