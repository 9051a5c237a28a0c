//! Runs the small server of the boundary page, right or broken, until it is killed: `boundary-server [--fault NAME] [--port N] …`.
//!
//! Prints its URL once it listens. `--list` names the faults. To be restarted by a command it needs its port and its `--key-file` again.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault, Settings};

const USAGE: &str = "boundary-server [--list] [--fault NAME] [--port N] [--key-file PATH] [--token TOKEN]... [--events-held N] \
                     [--event-ttl-ms N] [--session-ttl-ms N] [--retry-ms N]";

/// The secret in a file, which is made where there is none.
fn secret(path: &Path) -> Result<[u8; 16], String> {
    if !path.exists() {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
        std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    bytes.try_into().map_err(|_| format!("{}: a secret has 16 bytes", path.display()))
}

/// The fault and the settings; none where all is said.
fn options() -> Result<Option<(Option<Fault>, Settings)>, String> {
    let (mut fault, mut settings) = (None, Settings::default());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--list" {
            Fault::ALL.iter().for_each(|fault| println!("{:<28}{}", fault.name(), fault.about().trim()));
            return Ok(None);
        }
        let value = words.next().ok_or_else(|| format!("{word} is unknown or needs a value; {USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--fault" => fault = Some(value.parse()?),
            "--port" => settings.port = value.parse().map_err(|_| format!("{value} is no port"))?,
            "--key-file" => settings.secret = Some(secret(Path::new(&value))?),
            "--token" => settings.tokens.push(value),
            "--events-held" => settings.events_held = number()? as usize,
            "--event-ttl-ms" => settings.event_ttl = Duration::from_millis(number()?),
            "--session-ttl-ms" => settings.session_ttl = Duration::from_millis(number()?),
            "--retry-ms" => settings.retry = Duration::from_millis(number()?),
            _ => return Err(format!("{word} is unknown; {USAGE}")),
        }
    }
    Ok(Some((fault, settings)))
}

fn main() -> ExitCode {
    match options() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some((fault, settings))) => {
            let server = BoundaryServer::start_with(fault, settings);
            println!("http://{}/mcp", server.address);
            loop {
                std::thread::park();
            }
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
