//! What every report on a page has around it: one file that needs nothing else, in light and in dark.
//!
//! Never lets a page fetch or run anything, whatever is in its texts, nor send a character that steers what shows it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::shown::printable;

const STYLE: &str = include_str!("style.css");

/// The page with this title and body; `style` is its own, behind what all have.
pub(crate) fn render(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    // The markup has no control characters, so that only those of texts are shown instead of sent.
    printable(&page.into_string())
}
