//! Serves it: `cargo run -p rejoin-everything [ADDRESS]`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use rejoin::Server;
use rejoin_everything::{Everything, Shared};

fn main() -> Result<(), Box<dyn Error>> {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let address = std::env::args().nth(1).map_or(Ok(here), |address| address.parse())?;
    let shared = Shared::default();
    let server = Server::builder().listen(address).serve(move || Everything::new(&shared))?;
    println!("http://{}/mcp", server.local_addr());
    server.wait();
    Ok(())
}
