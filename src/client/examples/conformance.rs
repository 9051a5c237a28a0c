//! A client for the protocol's official suite: it begins a session with the URL that is its last argument, calls every tool that the server
//! lists, and ends the session. Fails where a call has no result.
//!
//! Never looks at which scenario it plays: what the suite asks for is what the client does anyway.

use rejoin_client::{Client, Options, Outcome};
use serde_json::{Map, Value, json};

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let url = std::env::args().next_back().filter(|url| url.starts_with("http")).ok_or("the last argument must be a URL")?;
    monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build()?.block_on(async {
        let (client, _events) = rejoin_client::monoio::connect(&url, Options::default()).await?;
        let tools = result(client.call("tools/list", json!({})).await)?;
        for tool in tools["tools"].as_array().into_iter().flatten() {
            play(&client, tool).await?;
        }
        client.end().await;
        Ok(())
    })
}

async fn play(client: &Client, tool: &Value) -> Result<(), Failed> {
    let name = tool["name"].as_str().ok_or("a tool without a name")?;
    let said = result(client.call_tool(name, arguments(&tool["inputSchema"])).await)?;
    println!("{name}: {said}");
    Ok(())
}

/// Something for each property that the schema requires.
fn arguments(schema: &Value) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(3),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    required.map(|name| (name.to_owned(), value(name))).collect()
}

fn result(outcome: Outcome) -> Result<Value, Failed> {
    match outcome {
        Outcome::Result(json) => Ok(serde_json::from_slice(&json)?),
        Outcome::Error(why) => Err(why.into()),
        Outcome::Unknown(why) => Err(why.to_string().into()),
    }
}
