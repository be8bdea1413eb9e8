//! The responses of webhooks, with the error texts of upstream's client.

use serde_json::Value;

use super::Answer;

/// The error text for an unsuccessful response; `None` for success.
pub fn refusal(answer: &Answer) -> Option<String> {
    if (200..=206).contains(&answer.code) {
        return None;
    }
    // The message of a Status in the body takes precedence over the code.
    if let Ok(status) = serde_json::from_slice::<Value>(&answer.body)
        && status.get("kind").and_then(Value::as_str) == Some("Status")
        && status.get("apiVersion").and_then(Value::as_str) == Some("v1")
        && let Some(message) = status.get("message").and_then(Value::as_str)
    {
        return Some(message.to_owned());
    }
    let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(2048)]).trim().to_owned();
    let text = match answer.code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 if body.is_empty() => "forbidden".to_owned(),
        403 => body,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 => "the server was unable to respond with a content type that the client supports".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        415 => "the server was unable to process the request content type".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => {
            let printed = if body.is_empty() { "unknown".to_owned() } else { body };
            format!("an error on the server ({printed:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    Some(text)
}

/// The review in a successful response, in any version.
pub fn decoded(answer: &Answer) -> Result<Value, String> {
    if answer.body.is_empty() {
        return Err(format!("0-length response with status code: {} and content type: {}", answer.code, answer.media));
    }
    let (value, _) = gojson::from_json(&answer.body)
        .map_err(|_| format!("couldn't get version/kind; json parse error: {}", syntax(&answer.body)))?;
    if !value.is_object() {
        let what = gotext::json_type(&value);
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
    }
    let printed = String::from_utf8_lossy(&answer.body[..answer.body.len().min(2048)]).into_owned();
    for (key, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if value.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(format!("Object '{name}' is missing in '{printed}'"));
        }
    }
    Ok(value)
}

/// Go's error text for invalid JSON, as far as its first character determines it.
fn syntax(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match text.trim_start().chars().next() {
        None => "unexpected end of JSON input".to_owned(),
        Some('{' | '[' | '"') => "unexpected end of JSON input".to_owned(),
        Some(c) => format!("invalid character '{c}' looking for beginning of value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, body: &str) -> Answer {
        Answer { code, media: "text/plain".into(), body: body.to_owned().into() }
    }

    #[test]
    fn rubbish_has_upstreams_message() {
        let error_of = |body| decoded(&answer(200, body)).unwrap_err();
        assert_eq!(error_of(""), "0-length response with status code: 200 and content type: text/plain");
        let parse = "couldn't get version/kind; json parse error: ";
        assert_eq!(error_of("rubbish"), format!("{parse}invalid character 'r' looking for beginning of value"));
        assert_eq!(error_of("{}"), "Object 'Kind' is missing in '{}'");
        assert_eq!(
            refusal(&answer(500, "boom\n")).unwrap(),
            "an error on the server (\"boom\") has prevented the request from succeeding"
        );
        assert!(refusal(&answer(200, "")).is_none());
        let status = r#"{"kind":"Status","apiVersion":"v1","message":"mine"}"#;
        assert_eq!(refusal(&answer(503, status)).unwrap(), "mine");
    }
}
