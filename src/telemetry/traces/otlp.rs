//! Spans as OTLP requests in JSON: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use super::span_data::{AttributeValue, SpanData};
use crate::version::VERSION;

/// `STATUS_CODE_ERROR` of OTLP.
const ERROR: u8 = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanBody<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusBody>,
}

#[derive(Serialize)]
struct StatusBody {
    code: u8,
}

/// The body of a request that exports these spans, with the attributes of the process that recorded them.
pub(super) fn request(resource: &[(&'static str, String)], spans: &[SpanData]) -> Vec<u8> {
    let resource: Vec<Value> =
        resource.iter().map(|(name, text)| attribute(name, &AttributeValue::Text(text.clone()))).collect();
    let spans: Vec<SpanBody<'_>> = spans.iter().map(span).collect();
    let scope = json!({"name": "posthaste", "version": VERSION});
    let spans_of_scope = json!({"scope": scope, "spans": spans});
    let request = json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [spans_of_scope]}]});
    request.to_string().into_bytes()
}

/// Spans that the collector rejected although it accepted the request, according to the response's `partialSuccess`.
pub(super) fn rejected_spans(response: &[u8]) -> u64 {
    let response: Value = serde_json::from_slice(response).unwrap_or_default();
    let rejected = &response["partialSuccess"]["rejectedSpans"];
    // The JSON mapping writes 64-bit numbers as text; readers accept both.
    rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0)
}

fn span(data: &SpanData) -> SpanBody<'_> {
    let started_at = data.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    SpanBody {
        trace_id: format!("{:032x}", data.context.trace_id),
        span_id: format!("{:016x}", data.context.span_id),
        parent_span_id: data.parent.map(|id| format!("{id:016x}")),
        name: &data.name,
        kind: data.kind as u8,
        start_time_unix_nano: started_at.as_nanos().to_string(),
        end_time_unix_nano: (started_at + data.duration).as_nanos().to_string(),
        attributes: data.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        status: data.is_error.then_some(StatusBody { code: ERROR }),
    }
}

fn attribute(name: &str, value: &AttributeValue) -> Value {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        AttributeValue::Integer(number) => json!({"intValue": number.to_string()}),
        AttributeValue::Double(number) => json!({"doubleValue": number}),
        AttributeValue::Flag(flag) => json!({"boolValue": flag}),
    };
    json!({"key": name, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::context::SpanContext;
    use crate::traces::span_data::SpanKind;

    #[test]
    fn request_has_the_form_of_the_json_mapping() {
        let span = SpanData {
            context: SpanContext { trace_id: 0xa0, span_id: 0xb, is_sampled: true },
            parent: Some(0xc),
            kind: SpanKind::Producer,
            name: "publish".to_owned(),
            started_at: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500),
            duration: Duration::from_nanos(250),
            attributes: vec![
                ("text", "a\"b".into()),
                ("number", 7_u64.into()),
                ("time", Duration::from_micros(1_500).into()),
                ("flag", true.into()),
            ],
            is_error: true,
        };
        let root = SpanData { parent: None, is_error: false, attributes: Vec::new(), ..span.clone() };

        let body: Value = serde_json::from_slice(&request(&[("service.name", "x".to_owned())], &[span, root])).unwrap();

        let resource = &body["resourceSpans"][0];
        let service_name = json!([{"key": "service.name", "value": {"stringValue": "x"}}]);
        assert_eq!(resource["resource"]["attributes"], service_name);
        assert_eq!(resource["scopeSpans"][0]["scope"]["name"], "posthaste");
        let spans = &resource["scopeSpans"][0]["spans"];
        let expected = json!({
            "traceId": "000000000000000000000000000000a0", "spanId": "000000000000000b",
            "parentSpanId": "000000000000000c", "name": "publish", "kind": 4,
            "startTimeUnixNano": "1500", "endTimeUnixNano": "1750",
            "attributes": [
                {"key": "text", "value": {"stringValue": "a\"b"}},
                {"key": "number", "value": {"intValue": "7"}},
                {"key": "time", "value": {"doubleValue": 1.5}},
                {"key": "flag", "value": {"boolValue": true}},
            ],
            "status": {"code": 2},
        });
        assert_eq!(spans[0], expected);
        assert!(spans[1].get("parentSpanId").is_none() && spans[1].get("status").is_none(), "{}", spans[1]);
    }

    #[test]
    fn rejected_spans_are_read_as_text_or_number() {
        let cases = [
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":2}}"#, 2),
            (r#"{"partialSuccess":{}}"#, 0),
            ("{}", 0),
            ("", 0),
            ("not JSON", 0),
        ];
        for (response, expected) in cases {
            assert_eq!(rejected_spans(response.as_bytes()), expected, "{response}");
        }
    }
}
