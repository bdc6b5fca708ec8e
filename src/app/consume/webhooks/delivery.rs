//! The delivery of an event to a webhook: whether the webhook receives it, the request, and the meaning of the response.
use domain::Timestamp;
use outbox::topics::{WEBHOOK_HEADER, retry_stage};
use ports::FailureType;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record, RecordHeaders};
use ports::endpoint::webhooks::Webhook;
use ports::endpoint::{EndpointError, EventRequest};

use super::signature::signatures;
use crate::consume::message_decision::MessageFailure;
use crate::consume::order_topic::OrderTopic;
use crate::consume::{post_handler, spring_headers};
use crate::operators::dead_letters::REDRIVEN_BY;

/// Class of the failure in the headers of a retried or dead-lettered event.
const FAILURE_CLASS: &str = "posthaste.WebhookFault";

/// Whether a webhook receives a message: an event of its topics and types, or one of its own in a retry topic.
pub fn receives(webhook: &Webhook, message: &ConsumerRecord) -> bool {
    let record = &message.record;
    if retry_stage(&message.position.topic).is_some() && record.header(WEBHOOK_HEADER).is_some() {
        return record.text(WEBHOOK_HEADER) == Some(&webhook.id.to_string());
    }
    let has_type =
        || record.text("ce_type").is_some_and(|event_type| webhook.types.iter().any(|wanted| wanted == event_type));
    webhook.topics.iter().any(|topic| **topic == *message.position.topic) && (webhook.types.is_empty() || has_type())
}

/// The id of a message, the same in every attempt: that of the event, or else its first position.
pub fn message_id(message: &ConsumerRecord) -> String {
    let ConsumerRecord { position, record } = message;
    let of_event = record.text("ce_id").filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()));
    of_event.map_or_else(|| first_position(position, record), str::to_owned)
}

fn first_position(position: &Position, record: &Record) -> String {
    let Position { topic, partition, offset } = position;
    let first = || {
        let (topic, partition) = (spring_headers::original_topic(record)?, spring_headers::original_partition(record)?);
        Some(format!("{topic}/{partition}/{}", spring_headers::original_offset(record)?))
    };
    first().unwrap_or_else(|| format!("{topic}/{partition}/{offset}"))
}

/// The signed request that delivers a message: without a frame where the topic of the orders has one, else with the whole value.
pub fn request(
    webhook: &Webhook,
    message_id: &str,
    message: &ConsumerRecord,
    orders: &OrderTopic,
    now: Timestamp,
) -> EventRequest {
    let whole = post_handler::request_with_whole_value;
    let of_record = if orders.contains(message) { post_handler::request } else { whole };
    let mut request = of_record(&message.record);
    request.attributes.retain(|name| !is_private(name) && !name.starts_with("webhook-"));
    request.attributes.extend(signed_headers(webhook, message_id, &request.body, now));
    request
}

/// Whether a header is internal and not sent to endpoints: the id of the webhook, and the operator who redrove the event. HTTP does not distinguish
/// the case of names.
fn is_private(name: &str) -> bool {
    [WEBHOOK_HEADER, REDRIVEN_BY].iter().any(|private| name.eq_ignore_ascii_case(private))
}

/// The request of a test event, which is in no topic.
pub fn test_request(webhook: &Webhook, message_id: &str, now: Timestamp) -> EventRequest {
    let body: Vec<u8> = format!(r#"{{"test":true,"webhook":"{}"}}"#, webhook.id).into();
    let of_event = [
        ("content-type", "application/json"),
        ("ce_specversion", "1.0"),
        ("ce_id", message_id),
        ("ce_type", TEST_TYPE),
        ("ce_source", "/posthaste/webhooks"),
    ];
    let mut attributes: RecordHeaders = of_event.into_iter().collect();
    attributes.extend(signed_headers(webhook, message_id, &body, now));
    EventRequest { attributes, body: body.into() }
}

/// Type of a test event.
pub const TEST_TYPE: &str = "posthaste.test";

fn signed_headers(webhook: &Webhook, message_id: &str, body: &[u8], now: Timestamp) -> [(&'static str, String); 3] {
    let valid = webhook.secrets.iter().filter(|secret| secret.valid_until.is_none_or(|until| until > now));
    let timestamp = now.millis().div_euclid(1_000);
    let signature = signatures(valid.map(|secret| secret.text.as_str()), message_id, timestamp, body);
    [
        ("webhook-id", message_id.to_owned()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
    ]
}

/// The failure of an event whose endpoint is gone.
pub const GONE: &str = "the endpoint answered with status 410";

/// Meaning of a response, or of its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// 2xx: the event is delivered.
    Accepted,
    /// 410: the endpoint asks for no further event, by the specification of Standard Webhooks.
    Gone,
    /// Every other status, or no response.
    Failed {
        /// Failure that is written into the headers.
        failure: MessageFailure,
        /// Conclusion about the endpoint.
        endpoint: EndpointState,
    },
}

/// Conclusion about the endpoint from a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It answered, and does not accept this event.
    Healthy,
    /// It fails as in an outage: another event would fail as well, unless this one causes it.
    Unavailable,
    /// It asks for fewer requests. No event causes that.
    Overloaded,
}

/// How the reason of a failure with a response begins; the status follows.
const ANSWERED: &str = "the endpoint answered with status ";

/// The status that the reason of a failure names; `None` where no response arrived.
pub fn status_of_failure(reason: &str) -> Option<u16> {
    reason.strip_prefix(ANSWERED)?.get(..3)?.parse().ok()
}

/// The verdict on a call.
pub fn verdict(result: &Result<u16, EndpointError>) -> AttemptVerdict {
    let failed = |failure_type, reason: String, endpoint| AttemptVerdict::Failed {
        failure: MessageFailure { failure_type, class: FAILURE_CLASS, reason },
        endpoint,
    };
    match result {
        Ok(200..=299) => AttemptVerdict::Accepted,
        Ok(410) => AttemptVerdict::Gone,
        Ok(status) => {
            let (failure_type, endpoint) = match status {
                408 => (FailureType::Timeout, EndpointState::Unavailable),
                429 | 503 => (FailureType::System, EndpointState::Overloaded),
                502 | 504 => (FailureType::System, EndpointState::Unavailable),
                500..=599 => (FailureType::System, EndpointState::Healthy),
                _ => (FailureType::Validation, EndpointState::Healthy),
            };
            let redirect = if (300..=399).contains(status) { "; redirects are not followed" } else { "" };
            failed(failure_type, format!("{ANSWERED}{status}{redirect}"), endpoint)
        }
        Err(error) => failed(error.failure_type, error.reason.clone(), EndpointState::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn status_of_a_failure_is_read_from_its_reason() {
        let error = EndpointError {
            fault: FaultClass::Transient,
            failure_type: FailureType::Timeout,
            reason: "no response".into(),
        };
        let cases = [(Ok(503), Some(503)), (Ok(302), Some(302)), (Ok(404), Some(404)), (Err(error), None)];
        for (result, expected) in cases {
            let AttemptVerdict::Failed { failure, .. } = verdict(&result) else { panic!("{result:?}") };
            assert_eq!(status_of_failure(&failure.reason), expected, "{}", failure.reason);
        }
    }

    use domain::WebhookId;
    use ports::FaultClass;
    use ports::endpoint::webhooks::WebhookSecret;

    use super::*;

    fn webhook() -> Webhook {
        let at = Timestamp::from_millis(1_000);
        let secret = |byte: u8, valid_until| WebhookSecret {
            text: super::super::signature::encode_secret([byte; 32]),
            valid_until,
        };
        Webhook {
            id: WebhookId::new_v7(at, [1; 10]),
            version: 1,
            url: "https://example.org".into(),
            topics: vec!["customers".into(), "order.events".into()],
            types: Vec::new(),
            ordered: true,
            active: true,
            disabled_reason: None,
            description: String::new(),
            secrets: vec![secret(1, None), secret(2, Some(Timestamp::from_millis(5_000)))],
            created_at: at,
            updated_at: at,
        }
    }

    fn consumer_record(topic: &str, headers: &[(&str, &str)]) -> ConsumerRecord {
        let headers = headers.iter().copied().collect();
        let (value, timestamp) = (b"{}".as_slice().into(), Timestamp::from_millis(0));
        ConsumerRecord {
            position: Position { topic: topic.into(), partition: 3, offset: 7 },
            record: Record { topic: topic.into(), key: "k".into(), headers, value, timestamp },
        }
    }

    #[test]
    fn webhook_receives_its_topics_its_types_and_its_own_retries() {
        let all = webhook();
        let some = Webhook { types: vec!["A".into()], ..webhook() };
        let own = all.id.to_string();

        assert!(receives(&all, &consumer_record("customers", &[])));
        assert!(receives(&all, &consumer_record("customers", &[("ce_type", "B")])));
        assert!(!receives(&all, &consumer_record("payments", &[("ce_type", "A")])));
        assert!(receives(&some, &consumer_record("customers", &[("ce_type", "A")])));
        assert!(!receives(&some, &consumer_record("customers", &[("ce_type", "B")])));
        assert!(!receives(&some, &consumer_record("customers", &[])));
        assert!(receives(&some, &consumer_record("webhooks-retry-2", &[(WEBHOOK_HEADER, &own), ("ce_type", "B")])));
        assert!(!receives(&all, &consumer_record("webhooks-retry-2", &[(WEBHOOK_HEADER, "another")])));
        assert!(!receives(&all, &consumer_record("order.events-retry-2", &[("ce_type", "A")])));
    }

    #[test]
    fn request_is_signed_with_every_secret_that_is_still_valid() {
        let message =
            consumer_record("webhooks-retry-1", &[("ce_id", "e1"), (WEBHOOK_HEADER, "x"), ("webhook-id", "forged")]);
        let orders = OrderTopic::new("order.events");
        let signature_count = |now: i64| {
            let request = request(&webhook(), "e1", &message, &orders, Timestamp::from_millis(now));
            let values = |name: &str| -> Vec<String> {
                let found = request.attributes.iter().filter(|(header, _)| *header == name);
                found.map(|(_, value)| String::from_utf8(value.to_vec()).expect("text")).collect()
            };
            assert_eq!((values("webhook-id"), values(WEBHOOK_HEADER)), (vec!["e1".to_owned()], Vec::new()));
            assert_eq!(values("webhook-timestamp"), [(now / 1_000).to_string()]);
            values("webhook-signature")[0].split(' ').count()
        };

        assert_eq!((signature_count(4_999), signature_count(5_000)), (2, 1));
    }

    #[test]
    fn request_names_no_operator() {
        let headers = [("tenant", "7"), ("x-redriven-by", "olga"), ("X-Redriven-By", "olga"), ("x-request-id", "r")];
        for topic in ["customers", "order.events"] {
            let message = consumer_record(topic, &headers);
            let orders = OrderTopic::new("order.events");

            let request = request(&webhook(), "e1", &message, &orders, Timestamp::from_millis(0));

            let names: Vec<&str> = request.attributes.iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["tenant", "x-request-id", "webhook-id", "webhook-timestamp", "webhook-signature"]);
        }
    }

    #[test]
    fn only_values_of_the_orders_topic_lose_their_frame() {
        let value = [0, 0, 0, 0, 17, b'7'];
        let body = |topic: &str, original: &str| {
            let headers = [(WEBHOOK_HEADER, "x"), ("kafka_original-topic", original)];
            let mut message = consumer_record(topic, &headers);
            message.record.value = value.into();
            request(&webhook(), "e1", &message, &OrderTopic::new("order.events"), Timestamp::from_millis(0)).body
        };
        for (topic, original) in [("customers", ""), ("webhooks-retry-1", "customers")] {
            assert_eq!(*body(topic, original), value, "{topic}");
        }
        for (topic, original) in [("order.events", ""), ("webhooks-retry-1", "order.events")] {
            assert_eq!(*body(topic, original), value[5..], "{topic}");
        }
    }

    #[test]
    fn message_keeps_its_id_in_every_attempt() {
        assert_eq!(message_id(&consumer_record("customers", &[("ce_id", "e1")])), "e1");
        assert_eq!(message_id(&consumer_record("customers", &[("ce_id", "two\nlines")])), "customers/3/7");
        let mut retried = consumer_record("webhooks-retry-0", &[("kafka_original-topic", "customers")]);
        retried.record.headers.push("kafka_original-partition", &5_i32.to_be_bytes());
        retried.record.headers.push("kafka_original-offset", &9_i64.to_be_bytes());
        assert_eq!(message_id(&retried), "customers/5/9");
    }

    #[test]
    fn status_decides_between_accepted_gone_and_failed() {
        let all = |expected: EndpointState, statuses: &[u16]| {
            let shows = |status| matches!(verdict(&Ok(status)), AttemptVerdict::Failed { endpoint, .. } if endpoint == expected);
            statuses.iter().all(|status| shows(*status))
        };

        assert!([200, 201, 202, 204, 299].into_iter().all(|status| verdict(&Ok(status)) == AttemptVerdict::Accepted));
        assert_eq!(verdict(&Ok(410)), AttemptVerdict::Gone);
        assert!(all(EndpointState::Healthy, &[301, 400, 401, 404, 409, 422, 500, 501]));
        assert!(all(EndpointState::Unavailable, &[408, 502, 504]));
        assert!(all(EndpointState::Overloaded, &[429, 503]));
        let error =
            EndpointError { fault: FaultClass::Transient, failure_type: FailureType::Network, reason: "cut".into() };
        let AttemptVerdict::Failed { failure, endpoint: EndpointState::Unavailable } = verdict(&Err(error)) else {
            panic!("it failed")
        };
        assert_eq!((failure.failure_type, failure.reason.as_str()), (FailureType::Network, "cut"));
    }
}
