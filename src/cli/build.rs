//! Tells the compiler which commit it builds, for `rejoin --version`.
//!
//! Never fails a build: where this source is not the root of a git work tree (a tarball, or vendored into another repository), or git
//! does not answer, the commit is `unknown`. Names no path to the compiler.

use std::path::Path;
use std::process::Command;

/// What is named where there is no commit.
const UNKNOWN: &str = "unknown";

/// Digits of a commit's name: git's own choice for a repository of a million objects.
const DIGITS: &str = "--short=12";

/// Files of a repository that change when HEAD comes to name another commit.
const TELLTALES: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = if root_is_ours() {
        watch();
        git(&["rev-parse", DIGITS, "HEAD"])
    } else {
        None
    };
    // Not by a name in REJOIN_: cargo sets it for what it runs, which would take it for a setting.
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit.as_deref().unwrap_or(UNKNOWN));
}

/// Whether the work tree that git finds here is this workspace's, two folders up.
fn root_is_ours() -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).and_then(|root| root.canonicalize().ok());
    let found = git(&["rev-parse", "--show-toplevel"]).and_then(|root| Path::new(&root).canonicalize().ok());
    workspace.is_some() && workspace == found
}

/// Has this run again when HEAD changes. A file that is not there would have it run always.
fn watch() {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in TELLTALES.into_iter().chain(branch.as_deref()) {
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// The one line that git answers, if it does.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
