//! What the command says of itself: its version, its pages for `man`, completions for shells.
//!
//! Never describes an option in words of its own: all of it is made of the declaration.

use std::io::{self, ErrorKind, Write, stdout};

use clap::ValueEnum;
use clap_complete::Shell;
use clap_mangen::Man;
use rejoin::{Driver, Revision};

use crate::command;

/// A page for `man`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    Rejoin,
    Serve,
    Completions,
    Man,
}

impl Page {
    /// The command that it describes, as it is declared.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

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
        env!("REJOIN_COMMIT"),
        revisions.join(", ")
    )
}

/// What a shell loads to complete our commands and options.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "rejoin", &mut text);
    text
}

/// A page in the language of `man`.
pub(crate) fn man(page: Page) -> io::Result<Vec<u8>> {
    let mut root = command();
    // Gives the commands under it their full names.
    root.build();
    let named = root.find_subcommand(page.name()).cloned().unwrap_or(root);
    let mut text = Vec::new();
    Man::new(named).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let commands = command();
        let declared = commands.get_subcommands().map(|one| one.get_name().to_owned());
        let pages: Vec<_> = Page::value_variants().iter().map(|page| page.name()).collect();
        assert_eq!(pages, std::iter::once("rejoin".to_owned()).chain(declared).collect::<Vec<_>>());
        for page in Page::value_variants() {
            let text = String::from_utf8(man(*page).expect("a page")).expect("text");
            let title = if *page == Page::Rejoin { "rejoin".to_owned() } else { format!("rejoin\\-{}", page.name()) };
            assert!(text.contains(&format!(".SH NAME\n{title} ")), "{text}");
        }
    }

    #[test]
    fn the_page_of_serve_has_every_option() {
        let text = String::from_utf8(man(Page::Serve).expect("a page")).expect("text").replace("\\-", "-");
        for option in crate::options().get_arguments() {
            let name = option.get_long().map_or("COMMAND".to_owned(), |long| format!("--{long}"));
            assert!(text.contains(&name), "{name}");
        }
    }
}
