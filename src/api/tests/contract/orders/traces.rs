//! Spans of requests: which requests begin a trace, and what commands carry of it.
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use app::dispatch::RequestSpan;
use kit::wait::scaled;
use serde_json::Value;
use telemetry::Metrics;
use telemetry::traces::{CollectorReply, Options, OtlpClient, SpanExporter, Tracer};

use crate::support::test_server::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Passes the requests on.
struct Forwarding(Sender<Value>);

impl OtlpClient for Forwarding {
    fn post(&self, body: &[u8], _timeout: Duration) -> Result<CollectorReply, String> {
        self.0.send(serde_json::from_slice(body).unwrap()).map_err(|_| "the test has ended".to_owned())?;
        Ok(CollectorReply { status: 200, body: Vec::new() })
    }
}

fn traced_server(sample_ratio: f64) -> (TestServer, SpanExporter, Receiver<Value>) {
    let ((sender, requests), options) = (channel(), Options { sample_ratio, ..Options::default() });
    let random = || 7;
    let (tracer, exporter) = Tracer::exporting(options, Forwarding(sender), random, &Metrics::new()).unwrap();
    let server = TestServer::with_config(TestConfig { tracer, ..TestConfig::default() });
    (server, exporter, requests)
}

/// The exported spans, after the end of the export.
fn exported(exporter: SpanExporter, requests: &Receiver<Value>) -> Vec<Value> {
    exporter.close(scaled(Duration::from_secs(20)));
    let spans = |body: Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    requests.iter().flat_map(spans).collect()
}

#[actix_web::test]
async fn commands_carry_the_requests_span_and_the_clients_trace_context_or_their_own() {
    let (server, exporter, requests) = traced_server(1.0);
    let place = |headers: &[(&'static str, String)]| {
        headers.iter().fold(post("/orders", ORDER).insert_header(user("ann")), |request, header| {
            request.insert_header((header.0, header.1.as_str()))
        })
    };
    let (sampled, unsampled) = (format!("00-{TRACE}-b7ad6b7169203331-01"), format!("00-{TRACE}-b7ad6b7169203331-00"));

    server.send(place(&[])).await;
    server.send(place(&[("traceparent", sampled.clone()), ("tracestate", "a=1".into())])).await;
    server.send(place(&[("traceparent", unsampled.clone())])).await;
    server.send(place(&[("traceparent", "00-nonsense".into()), ("tracestate", "a=1".into())])).await;

    let seen = std::mem::take(&mut *server.dispatch.seen.lock());
    let own = RequestSpan { trace_id: (7 << 64) | 7, span_id: 7 };
    let spans: Vec<Option<RequestSpan>> = seen.iter().map(|command| command.span).collect();
    let joined = RequestSpan { trace_id: u128::from_str_radix(TRACE, 16).unwrap(), span_id: 7 };
    assert_eq!(spans, [Some(own), Some(joined), None, Some(own)]);
    let stored =
        |index: usize| seen[index].trace.as_ref().map(|trace| (trace.parent.to_string(), trace.state.as_deref()));
    let own = "00-00000000000000070000000000000007-0000000000000007-01".to_owned();
    assert_eq!([stored(0), stored(1)], [Some((own.clone(), None)), Some((sampled, Some("a=1")))]);
    assert_eq!([stored(2), stored(3)], [Some((unsampled, None)), Some((own, None))]);
    let exported = exported(exporter, &requests);
    assert_eq!(exported.len(), 3);
    assert!(exported.iter().all(|span| span["name"] == "POST /orders" && span["kind"] == 2), "{exported:?}");
}

#[actix_web::test]
async fn refusals_are_no_errors_and_routine_requests_begin_no_trace() {
    let (server, exporter, requests) = traced_server(1.0);
    *server.dispatch.fails.lock() = Some(app::error::CommandError::Unknown("secret-host".into()));

    server.send(get("/livez")).await;
    server.send(get("/livez").insert_header(("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01")))).await;
    server.send(get("/orders")).await;
    server.send(post("/orders", ORDER).insert_header(user("ann"))).await;

    let spans = exported(exporter, &requests);
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["GET /livez", "GET /orders", "POST /orders"]);
    assert_eq!((&spans[0]["parentSpanId"], &spans[1]["status"]), (&Value::from("b7ad6b7169203331"), &Value::Null));
    assert_eq!(spans[2]["status"]["code"], 2);
    assert!(!format!("{spans:?}").contains("secret-host"));
}

#[actix_web::test]
async fn ratio_of_zero_samples_no_new_trace_and_changes_no_command() {
    let (server, exporter, requests) = traced_server(0.0);

    server.send(post("/orders", ORDER).insert_header(user("ann"))).await;

    let seen = std::mem::take(&mut *server.dispatch.seen.lock());
    assert_eq!((seen[0].span, seen[0].trace.as_ref()), (None, None));
    assert_eq!(exported(exporter, &requests), Vec::<Value>::new());
}
