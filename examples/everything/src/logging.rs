//! How important a log message is, and from which importance on a session wants them.
//!
//! Never sends anything.

use serde::{Deserialize, Serialize};

/// RFC 5424, section 6.2.1, as MCP names them; the least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Detailed debugging information.
    Debug,
    /// General informational messages.
    Info,
    /// Normal but significant events.
    Notice,
    /// Warning conditions.
    Warning,
    /// Error conditions.
    Error,
    /// Critical conditions.
    Critical,
    /// Action must be taken at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

/// The params of `logging/setLevel`.
#[derive(Deserialize)]
pub(crate) struct SetLevel {
    pub(crate) level: Level,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_the_order_of_their_importance() {
        let names = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
        let levels: Vec<Level> = serde_json::from_value(names.into()).expect("all are levels");
        assert!(levels.is_sorted() && levels.windows(2).all(|pair| pair[0] != pair[1]), "{levels:?}");
        assert!(serde_json::from_value::<Level>("Info".into()).is_err());
    }
}
