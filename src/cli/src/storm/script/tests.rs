//! Scripts as they are read, and what a wrong one is told.

use super::*;

const HEAD: &str = "summary = \"s\"\n[population]\nsessions = 100\n[call]\nticks = 4\ninterval = \"1s\"\n";
const RAMP: &str = "[[phase]]\nkind = \"ramp\"\nfor = \"2s\"\n";

fn read(rest: &str) -> Result<Script, String> {
    script("folder/mine.toml", &format!("{HEAD}{RAMP}{rest}")).map_err(|error| error.to_string())
}

/// Asserts that this is refused at the line of `rest` (from 1) for this reason.
#[track_caller]
fn refused(rest: &str, line: usize, why: &str) {
    let error = read(rest).expect_err("refused");
    let at = format!("folder/mine.toml:{}:", (HEAD.to_owned() + RAMP).lines().count() + line);
    assert!(error.starts_with(&at) && error.contains(why) && !error.contains('\n'), "{error:?}, not at {at}");
}

#[test]
fn a_script_reads_as_it_is_written() {
    let script = read(
        "[[phase]]\nkind = \"cut\"\nfor = \"10s\"\nshare = \"30%\"\nhow = \"fin\"\ntimes = 2\nat = \"once\"\nback = \"herd\"\naway = \"5s\"\n\
         [[phase]]\nkind = \"slow\"\nfor = \"1s\"\nshare = 0.5\nrate = \"2KiB\"\ncall = { payload = \"1KiB\" }\n\
         [least]\ncuts = 60\n[most]\nlost = 3\n",
    )
    .expect("a script");
    assert_eq!((script.name.as_str(), script.sessions, script.length()), ("mine", 100, Duration::from_secs(13)));
    let Kind::Cut(cut) = script.phases[1].kind else { panic!("{:?}", script.phases[1]) };
    assert_eq!((cut.how, cut.times, cut.at_once, cut.back), (How::Fin, 2, true, Back::Herd { away: Duration::from_secs(5) }));
    assert!((cut.share.get() - 0.3).abs() < 1e-9);
    let call = script.phases[2].call.as_ref().expect("a call of its own");
    let kept = Ticker { ticks: 4, interval: Duration::from_secs(1), payload: 1_024 };
    assert_eq!(call.tool, Tool::Ticker(kept), "what the phase does not say stays");
    assert_eq!((script.least.cuts, script.most.lost), (Some(60), Some(3)));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    refused("[[phase]]\nkind = \"explode\"\nfor = \"1s\"\n", 2, "explode");
    refused("[[phase]]\nkind = \"steady\"\nfor = \"soon\"\n", 3, "soon");
    refused("[[phase]]\nkind = \"steady\"\nfor = \"0s\"\n", 3, "longer than zero");
    refused("[[phase]]\nkind = \"steady\"\nfor = \"1s\"\ncolour = 1\n", 4, "colour");
    refused("[[phase]]\nkind = \"steady\"\nfor = \"1s\"\nshare = 0.2\n", 4, "`share` means nothing");
    refused("[[phase]]\nkind = \"cut\"\nfor = \"1s\"\nshare = \"130%\"\n", 4, "share");
    refused("[[phase]]\nkind = \"cut\"\nfor = \"1s\"\nback = \"herd\"\n", 4, "needs `away`");
    refused("[[phase]]\nkind = \"cut\"\nfor = \"1s\"\naway = \"1s\"\n", 2, "go with back");
    refused("[[phase]]\nkind = \"cut\"\nfor = \"4s\"\ntimes = 4\nback = \"herd\"\naway = \"2s\"\n", 6, "cut again before");
    refused("[[phase]]\nkind = \"slow\"\nfor = \"1s\"\n", 2, "needs `rate`");
    refused("[[phase]]\nkind = \"forge\"\nfor = \"1s\"\ncursors = []\n", 4, "at least one");
    refused("[[phase]]\nkind = \"steady\"\nfor = \"1s\"\ncall = { tool = \"echo\", ticks = 3 }\n", 4, "`ticks` is ticker's");
    refused("[[phase]]\nkind = \"steady\"\n", 1, "for");
    refused("[least]\nsmiles = 3\n", 2, "smiles");
    refused("[least]\ncuts = -3\n", 2, "-3");
    refused("[least\n", 1, "");
}

#[test]
fn nothing_happens_before_the_first_ramp() {
    let error =
        script("x.toml", &format!("{HEAD}[[phase]]\nkind = \"steady\"\nfor = \"1s\"\n")).expect_err("refused").to_string();
    assert!(error.starts_with("x.toml:8:") && error.contains("ramp"), "{error}");
}

#[test]
fn what_a_script_states_scales_with_its_sessions() {
    let script = read("[least]\ncuts = 150\nresumes = 7\n[most]\nlost = 1\n").expect("a script").with_sessions(10);
    assert_eq!((script.least.cuts, script.least.resumes, script.most.lost), (Some(15), Some(0), Some(1)));
    assert_eq!(script.least.replays, None, "what is not stated is not bounded");
}

#[test]
fn a_faster_script_is_faster_in_everything_but_patience() {
    let script = read("[[phase]]\nkind = \"cut\"\nfor = \"10s\"\nback = \"herd\"\naway = \"4s\"\n").expect("a script");
    let fast = script.clone().with_time_scale(0.25);
    assert_eq!(fast.length(), script.length() / 4);
    let Kind::Cut(cut) = fast.phases[1].kind else { panic!("{:?}", fast.phases[1]) };
    assert_eq!(cut.back, Back::Herd { away: Duration::from_secs(1) });
    assert_eq!((fast.call.patience, fast.settle), (script.call.patience, script.settle));
}

#[test]
fn another_tool_has_arguments_of_its_own() {
    let text = "summary = \"s\"\n[population]\nsessions = 1\n[call]\ntool = \"add\"\narguments = { a = 1, b = 2 }\n";
    let script = script("x.toml", &format!("{text}{RAMP}")).expect("a script");
    let Tool::Other { name, arguments } = script.call.tool else { panic!("{:?}", script.call) };
    assert_eq!((name.as_str(), arguments["b"].as_i64()), ("add", Some(2)));
}
