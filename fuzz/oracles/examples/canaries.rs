//! Prints each canary that a fuzz target must notice: the target, a space, the canary's name.

use rejoin_proto::canary::{Canary, Hunter};

fn main() {
    for canary in Canary::ALL {
        if let Hunter::Fuzz(target) = canary.hunter() {
            println!("{target} {}", canary.name());
        }
    }
}
