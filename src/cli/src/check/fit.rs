//! The tool that cases call: how its arguments are written, and which of a server's tools fits.
//!
//! Never calls a tool; never picks one that says it is destructive.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// Arguments with places for what a case asks for: `"$events"`, `"$every_ms"`, `"$every_s"`, `"$duration_ms"`, `"$duration_s"`, `"$payload"`, `"$key"`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(pub(crate) Map<String, Value>);

/// What a case asks of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish<'a> {
    /// Events before the answer.
    pub(crate) events: u32,
    /// Time between them.
    pub(crate) every: Duration,
    /// Bytes in each beside what it needs, where the tool can.
    pub(crate) payload: usize,
    /// What counts its executions, where the tool can.
    pub(crate) key: &'a str,
}

impl Template {
    /// Whether a case can say how many events come.
    pub(crate) fn is_adjustable(&self) -> bool {
        self.0.values().any(|value| value == "$events")
    }

    /// The arguments for a wish.
    pub(crate) fn fill(&self, wish: &Wish<'_>) -> Value {
        let length = wish.every * wish.events;
        let filled = |value: &Value| match value.as_str() {
            Some("$events") => json!(wish.events),
            Some("$every_ms") => json!(wish.every.as_millis() as u64),
            Some("$every_s") => json!(wish.every.as_secs_f64()),
            Some("$duration_ms") => json!(length.as_millis() as u64),
            Some("$duration_s") => json!(length.as_secs_f64()),
            Some("$payload") => json!(wish.payload),
            Some("$key") => json!(wish.key),
            _ => value.clone(),
        };
        self.0.iter().map(|(name, value)| (name.clone(), filled(value))).collect::<Map<_, _>>().into()
    }
}

/// A tool that may fit, and how to call it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments.
    pub(crate) template: Template,
}

/// Tools that others are known to have, with their arguments.
fn known(name: &str) -> Option<Value> {
    Some(match name {
        // rejoin's own embedded server.
        "ticker" => json!({ "count": "$events", "interval_ms": "$every_ms", "payload_bytes": "$payload", "key": "$key" }),
        // The protocol's reference server, in two of its versions.
        "longRunningOperation" | "trigger-long-running-operation" => json!({ "steps": "$events", "duration": "$duration_s" }),
        _ => return None,
    })
}

const COUNTS: [&str; 9] = ["events", "count", "n", "steps", "ticks", "times", "iterations", "total", "repeat"];
const PACES: [(&str, &str); 12] = [
    ("every_ms", "$every_ms"),
    ("interval_ms", "$every_ms"),
    ("delay_ms", "$every_ms"),
    ("intervalMs", "$every_ms"),
    ("everyMs", "$every_ms"),
    ("delayMs", "$every_ms"),
    ("interval", "$every_s"),
    ("delay", "$every_s"),
    ("interval_s", "$every_s"),
    ("interval_seconds", "$every_s"),
    ("duration", "$duration_s"),
    ("duration_ms", "$duration_ms"),
];

/// What the schema's names and types suggest, if all that it requires is understood.
fn guessed(schema: &Value) -> Option<Template> {
    let properties = schema["properties"].as_object()?;
    let is_number = |name: &str| properties.get(name).is_some_and(|of| matches!(of["type"].as_str(), Some("integer" | "number")));
    let count = COUNTS.into_iter().find(|name| is_number(name))?;
    let mut arguments = Map::new();
    arguments.insert(count.to_owned(), json!("$events"));
    if let Some((name, place)) = PACES.into_iter().find(|(name, _)| is_number(name)) {
        arguments.insert(name.to_owned(), json!(place));
    }
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    required.iter().all(|name| name.as_str().is_some_and(|name| arguments.contains_key(name))).then_some(Template(arguments))
}

/// Tools tried at most, beside known ones. Reason: each is called.
const TRIED: usize = 8;

/// The tools that may fit, the likeliest first.
pub(crate) fn candidates(tools: &[Value]) -> Vec<Candidate> {
    let named = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for tool in tools {
        if let Some(Value::Object(arguments)) = known(&named(tool)) {
            found.push(Candidate { name: named(tool), template: Template(arguments) });
        }
    }
    let harmless = |tool: &&Value| tool["annotations"]["destructiveHint"] != true;
    let mut tried: Vec<_> = tools
        .iter()
        .filter(harmless)
        .filter_map(|tool| guessed(&tool["inputSchema"]).map(|template| Candidate { name: named(tool), template }))
        .collect();
    let needs_nothing = |tool: &&Value| tool["inputSchema"]["required"].as_array().is_none_or(Vec::is_empty);
    let plain = tools.iter().filter(harmless).filter(needs_nothing);
    tried.extend(plain.map(|tool| Candidate { name: named(tool), template: Template(Map::new()) }));
    for candidate in tried {
        if found.iter().all(|known: &Candidate| known.name != candidate.name) {
            found.push(candidate);
        }
    }
    found.truncate(TRIED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> Value {
        json!({ "name": name, "inputSchema": schema })
    }

    #[test]
    fn a_template_is_filled_where_it_has_places() {
        let Value::Object(arguments) =
            json!({ "n": "$events", "ms": "$every_ms", "all": "$duration_s", "k": "$key", "other": 5, "text": "as it is" })
        else {
            unreachable!("an object")
        };
        let template = Template(arguments);
        assert!(template.is_adjustable());
        let wish = Wish { events: 4, every: Duration::from_millis(250), payload: 0, key: "key" };
        let expected = json!({ "n": 4, "ms": 250, "all": 1.0, "k": "key", "other": 5, "text": "as it is" });
        assert_eq!(template.fill(&wish), expected);
        assert!(!Template(Map::new()).is_adjustable());
    }

    #[test]
    fn known_tools_come_first_then_understood_ones_then_those_without_arguments() {
        let number = json!({ "type": "integer" });
        let tools = [
            tool("plain", json!({ "type": "object" })),
            tool("needs", json!({ "required": ["path"], "properties": { "path": { "type": "string" } } })),
            tool("count", json!({ "required": ["events", "every_ms"], "properties": { "events": number, "every_ms": number } })),
            json!({ "name": "wipe", "inputSchema": {}, "annotations": { "destructiveHint": true } }),
            tool("ticker", json!({ "properties": { "count": number } })),
        ];
        let found = candidates(&tools);
        assert_eq!(found.iter().map(|found| &*found.name).collect::<Vec<_>>(), ["ticker", "count", "plain"]);
        assert_eq!(Value::from(found[1].template.0.clone()), json!({ "events": "$events", "every_ms": "$every_ms" }));
    }

    #[test]
    fn a_schema_that_requires_more_than_is_understood_is_left_alone() {
        let schema = json!({ "required": ["count", "file"], "properties": { "count": { "type": "integer" }, "file": {} } });
        assert_eq!(guessed(&schema), None);
        assert_eq!(candidates(&[tool("a", schema)]), []);
    }
}
