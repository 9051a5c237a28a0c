//! What a case found, and what that makes of it.
//!
//! Never mixes what the protocol's specification says with what our boundary page says: a finding names one of them.

use std::fmt;

use serde::Serialize;

use super::sentences::Sentence;

/// What a finding costs a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cost {
    /// Something that the server said is never seen, and nothing says so.
    Gap,
    /// Something is seen twice, or seen that belongs to nobody any more.
    Duplicate,
    /// A call runs twice.
    DoubleExecution,
    /// A client waits for what never comes, or comes back for ever.
    Hang,
    /// Somebody sees what is another's.
    Leak,
    /// A session that could have gone on is lost.
    LostSession,
}

impl Cost {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Duplicate => "duplicate",
            Self::DoubleExecution => "double execution",
            Self::Hang => "hang",
            Self::Leak => "leak to another session",
            Self::LostSession => "lost session",
        }
    }
}

/// How bad a finding is; the worst is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// It works, and a client could be told more.
    Unclear,
    /// A sentence of the specification is not kept.
    ViolatesMcp,
    /// A row of the boundary page is not kept, and it costs a user something.
    BreaksContinuity,
}

/// One thing that a case found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// How bad it is.
    pub(crate) kind: Kind,
    /// What came, in place of what.
    pub(crate) text: String,
    /// What it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Cost>,
    /// The place on the boundary page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boundary: Option<&'static str>,
    /// The sentence of the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mcp: Option<&'static Sentence>,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// As expected.
    Pass,
    /// Works, and could be clearer.
    Unclear,
    /// Violates MCP.
    ViolatesMcp,
    /// Breaks continuity.
    BreaksContinuity,
    /// Not tested.
    Untested,
}

impl Verdict {
    /// Every one, in the order of reports.
    pub(crate) const ALL: [Self; 5] = [Self::BreaksContinuity, Self::ViolatesMcp, Self::Unclear, Self::Untested, Self::Pass];

    /// The worst of these decides.
    pub(crate) fn of(findings: &[Finding]) -> Self {
        match findings.iter().map(|finding| finding.kind).max() {
            None => Self::Pass,
            Some(Kind::Unclear) => Self::Unclear,
            Some(Kind::ViolatesMcp) => Self::ViolatesMcp,
            Some(Kind::BreaksContinuity) => Self::BreaksContinuity,
        }
    }

    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Unclear => "could be clearer",
            Self::ViolatesMcp => "violates MCP",
            Self::BreaksContinuity => "breaks continuity",
            Self::Untested => "untested",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let finding = |kind| Finding { kind, text: String::new(), cost: None, boundary: None, mcp: None };
        assert_eq!(Verdict::of(&[]), Verdict::Pass);
        assert_eq!(Verdict::of(&[finding(Kind::Unclear)]), Verdict::Unclear);
        assert_eq!(Verdict::of(&[finding(Kind::ViolatesMcp), finding(Kind::Unclear)]), Verdict::ViolatesMcp);
        let all = [finding(Kind::ViolatesMcp), finding(Kind::BreaksContinuity), finding(Kind::Unclear)];
        assert_eq!(Verdict::of(&all), Verdict::BreaksContinuity);
    }
}
