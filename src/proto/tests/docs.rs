//! `docs/boundary.md` and the refusal table say the same.

use rejoin_proto::refusal::{Ended, Refusal, Room};

const PAGE: &str = include_str!("../../../docs/boundary.md");

const REASONS: [Ended; 9] = [
    Ended::Expired,
    Ended::Deleted,
    Ended::Closed,
    Ended::Shed,
    Ended::Lineage,
    Ended::Restarted,
    Ended::Incarnation,
    Ended::Forgotten,
    Ended::Unknown,
];

/// Every refusal, each variant once: the match makes a new variant a compile error here.
fn refusals() -> Vec<Refusal> {
    let all = vec![
        Refusal::BadRequest("why"),
        Refusal::Forbidden("why"),
        Refusal::Unauthorized,
        Refusal::NotFound,
        Refusal::MethodNotAllowed,
        Refusal::NotAcceptable("why"),
        Refusal::UnsupportedMediaType,
        Refusal::Timeout("why"),
        Refusal::TooLarge,
        Refusal::HeadTooLarge,
        Refusal::TargetTooLong,
        Refusal::ParseError,
        Refusal::InvalidRequest("why"),
        Refusal::UnsupportedRevision,
        Refusal::RevisionNotServed,
        Refusal::InvalidParams("why"),
        Refusal::HeaderMismatch("why"),
        Refusal::MethodNotFound,
        Refusal::SessionRequired,
        Refusal::SessionExpired(Ended::Unknown),
        Refusal::KeyReused,
        Refusal::InvalidCursor("why"),
        Refusal::Shed(Room::Session, "why"),
    ];
    for refusal in &all {
        match refusal {
            Refusal::BadRequest(_) | Refusal::Forbidden(_) | Refusal::Unauthorized | Refusal::NotFound => {}
            Refusal::MethodNotAllowed | Refusal::NotAcceptable(_) | Refusal::UnsupportedMediaType | Refusal::Timeout(_) => {}
            Refusal::TooLarge | Refusal::HeadTooLarge | Refusal::TargetTooLong | Refusal::ParseError => {}
            Refusal::InvalidRequest(_) | Refusal::UnsupportedRevision | Refusal::SessionRequired => {}
            Refusal::KeyReused
            | Refusal::RevisionNotServed
            | Refusal::InvalidParams(_)
            | Refusal::HeaderMismatch(_)
            | Refusal::MethodNotFound => {}
            Refusal::SessionExpired(_) | Refusal::InvalidCursor(_) | Refusal::Shed(..) => {}
        }
    }
    all
}

/// The rows of the table under a heading: cells without their back-ticks.
fn table(heading: &str) -> Vec<Vec<String>> {
    let from = PAGE.find(heading).expect("the heading");
    PAGE[from..]
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

#[test]
fn the_pages_refusals_are_the_refusal_table() {
    let mut written = table("## Refusals");
    let mut real: Vec<Vec<String>> = refusals()
        .into_iter()
        .map(|refusal| {
            let shape = refusal.shape();
            let connection = if shape.closes { "closes" } else { "stays" };
            let cells = [
                shape.code.to_string(),
                shape.status.to_string(),
                shape.rpc_code.to_string(),
                shape.action.as_str().to_string(),
                connection.to_string(),
            ];
            cells.to_vec()
        })
        .collect();
    written.sort();
    real.sort();
    assert_eq!(written, real);
}

#[test]
fn the_pages_reasons_are_the_reasons() {
    let written: Vec<_> = table("has one of these reasons").into_iter().map(|row| row[0].clone()).collect();
    let real: Vec<_> = REASONS.iter().map(|ended| ended.reason().to_string()).collect();
    assert_eq!(written, real);
}

#[test]
fn each_refused_row_of_the_get_table_is_in_the_refusal_table() {
    let shapes: Vec<_> = refusals().into_iter().map(|refusal| refusal.shape()).collect();
    let rows = table("## GET");
    assert_eq!(
        rows.iter().map(|row| row[0].parse::<u8>().expect("a number")).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14]
    );
    for row in rows.iter().filter(|row| !row[3].is_empty()) {
        let found = shapes.iter().any(|shape| shape.code == row[3] && shape.status.to_string() == row[2]);
        assert!(found, "row {row:?}");
    }
}
