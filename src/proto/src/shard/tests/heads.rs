//! Heads of requests go to the handler where it asks for them, and nowhere else; where its caller is in its trace it is told always.

use super::*;

const MESSAGES: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}},{"jsonrpc":"2.0","method":"notifications/mine"}]"#;

/// The value of the field that came with each of the deliveries so far.
fn flavours(bench: &mut Bench) -> Vec<Option<String>> {
    let heads = bench.deliveries.drain(..).filter_map(|(_, delivery)| match delivery {
        Delivery::Initialize { head, .. } | Delivery::Request { head, .. } | Delivery::Notification { head, .. } => Some(head),
        _ => None,
    });
    heads
        .map(|head| {
            head.map(|head| String::from_utf8_lossy(head.single("flavour").expect("one").unwrap_or_default()).into_owned())
        })
        .collect()
}

#[test]
fn every_message_of_a_request_carries_its_head_where_the_handler_asks_for_heads() {
    for heads in [true, false] {
        let mut bench = Bench::new(|config| config.heads = heads);
        let came = |flavour: &str| heads.then(|| flavour.to_owned());
        let session = bench.session("2025-03-26");
        bench.ask(&post(&format!("{}Flavour: lemon\r\n", id(session)), MESSAGES));
        assert_eq!(flavours(&mut bench), [came("lemon"), came("lemon"), came("lemon")]);
        bench.ask(&post(&id(session), MESSAGES));
        assert!(flavours(&mut bench).iter().all(|flavour| *flavour == came("")), "a head is its own request's");
        bench.ask(&post("Flavour: lime\r\n", r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#));
        assert_eq!(flavours(&mut bench), [came("lime")]);
    }
}

#[test]
fn where_a_caller_is_in_its_trace_comes_with_every_call_of_its_request_and_of_no_other() {
    let mut bench = Bench::new(|config| config.heads = false);
    let traces = |bench: &mut Bench| -> Vec<Option<String>> {
        let traces = bench.deliveries.drain(..).filter_map(|(_, delivery)| match delivery {
            Delivery::Initialize { traceparent, .. }
            | Delivery::Request { traceparent, .. }
            | Delivery::Exchange { traceparent, .. } => Some(traceparent),
            _ => None,
        });
        traces.map(|trace| trace.map(|trace| trace.to_string())).collect()
    };
    let some = |trace: &str| Some(trace.to_owned());
    let session = bench.session("2025-03-26");
    bench.deliveries.clear();
    bench.ask(&post(&format!("{}Traceparent: 00-a\r\n", id(session)), MESSAGES));
    assert_eq!(traces(&mut bench), [some("00-a"), some("00-a")]);
    let fields = format!("{}Traceparent: a\r\nTraceparent: b\r\n", id(session));
    for (none, first) in [(id(session), 3), (fields, 5)] {
        // Ids of their own: these are other calls.
        let messages = MESSAGES.replace(":1,", &format!(":{first},")).replace(":2,", &format!(":{},", first + 1));
        bench.ask(&post(&none, &messages));
        assert_eq!(traces(&mut bench), [None, None], "{none}");
    }
    bench.ask(&post("traceparent: 00-b\r\n", r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#));
    assert_eq!(traces(&mut bench), [some("00-b")]);
    let exchange = exchanges::Modern { more: "TRACEPARENT: 00-c\r\n", ..exchanges::Modern::call() };
    bench.ask(&exchange.text());
    assert_eq!(traces(&mut bench), [some("00-c")]);
}
