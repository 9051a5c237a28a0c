//! What the command says of itself: its version, its pages for `man`, completions for shells.
//!
//! Never describes an option in words of its own: all of it is made of the declaration.

use std::io::{self, ErrorKind, Write, stdout};

use clap_complete::Shell;
use clap_mangen::Man;
use rejoin::{Driver, Revision};

use crate::command;

/// Writes to standard output. A reader that went away is no error.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Version and commit; what the drivers are worth on this machine, which is tried now; the revisions of MCP.
pub(crate) fn version() -> String {
    let uring = match Driver::Uring.available() {
        Ok(name) => format!("{name} works here"),
        Err(error) => format!("io_uring does not work here ({error})"),
    };
    let revisions: Vec<_> = Revision::ALL
        .iter()
        .map(|revision| match revision.rules() {
            rules if !rules.streamable => format!("{} (of stdio servers)", rules.name),
            rules => rules.name.to_owned(),
        })
        .collect();
    format!(
        "rejoin {} (commit {})\ndrivers: epoll; {uring}\nMCP revisions: {}\n",
        env!("CARGO_PKG_VERSION"),
        env!("BUILD_COMMIT"),
        revisions.join(", ")
    )
}

/// What a shell loads to complete our commands and options.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "rejoin", &mut text);
    text
}

/// The page of a command in the language of `man`, or the page of them all; none where there is no such command.
pub(crate) fn man(name: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let mut root = command();
    // Gives the commands under it their full names.
    root.build();
    let described = match name {
        Some(name) => root.find_subcommand(name).cloned(),
        None => Some(root),
    };
    let Some(described) = described else { return Ok(None) };
    let mut text = Vec::new();
    Man::new(described).source(concat!("rejoin ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: Option<&str>) -> String {
        String::from_utf8(man(name).expect("rendered").expect("a page")).expect("text").replace("\\-", "-")
    }

    #[test]
    fn every_command_has_a_page() {
        assert!(page(None).contains(".SH NAME\nrejoin - "));
        for one in command().get_subcommands() {
            let name = one.get_name();
            assert!(page(Some(name)).contains(&format!(".SH NAME\nrejoin-{name} - ")), "{name}");
        }
        assert!(man(Some("nothing")).expect("no failure").is_none());
    }

    #[test]
    fn the_page_of_serve_has_every_option() {
        let text = page(Some("serve"));
        for option in crate::options().get_arguments() {
            let name = option.get_long().map_or("COMMAND".to_owned(), |long| format!("--{long}"));
            assert!(text.contains(&name), "{name}");
        }
    }

    #[test]
    fn every_shell_gets_its_completions() {
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            let text = String::from_utf8(completions(*shell)).expect("text");
            assert!(text.contains("session-ttl") && text.contains("print-config"), "{shell}");
        }
    }
}
