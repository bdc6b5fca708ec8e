//! Calls of webhooks' endpoints: any status is a response, and only permitted addresses are connected.
use std::time::Duration;

use endpoints::{AddressPolicy, HttpWebhookClient, WebhookClientOptions};
use ports::FailureType;
use ports::endpoint::{EventRequest, WebhookClient};

use crate::test_server::{Reaction, TestServer};

fn client(addresses: AddressPolicy) -> HttpWebhookClient {
    HttpWebhookClient::new(WebhookClientOptions { addresses, ..WebhookClientOptions::default() })
}

fn event() -> EventRequest {
    let headers: [(&str, &[u8]); 3] = [("webhook-id", b"e1"), ("webhook-signature", b"v1,x"), ("ce_id", b"e1")];
    let attributes = headers.into_iter().collect();
    EventRequest { attributes, body: b"{}".as_slice().into() }
}

async fn status(reaction: Reaction) -> u16 {
    let server = TestServer::start(reaction).await;
    client(AddressPolicy::Any).post(&format!("http://{}/hooks", server.address), event()).await.unwrap()
}

#[tokio::test]
async fn endpoint_receives_the_signed_headers() {
    let server = TestServer::start(Reaction::Write("HTTP/1.1 204 No Content\r\n\r\n")).await;

    client(AddressPolicy::Any).post(&format!("http://{}/hooks", server.address), event()).await.unwrap();

    let request = server.requests().remove(0).to_lowercase();
    for line in ["post /hooks http/1.1", "webhook-id: e1", "webhook-signature: v1,x", "ce-id: e1"] {
        assert!(request.lines().any(|found| found == line), "{line} in {request}");
    }
}

#[tokio::test]
async fn every_status_is_a_response_and_no_redirect_is_followed() {
    let target = TestServer::start(Reaction::Write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let redirect =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", target.address);

    assert_eq!(status(Reaction::Write(redirect.leak())).await, 307);
    assert!(target.requests().is_empty());
    assert_eq!(status(Reaction::Write("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n")).await, 410);
    let endless = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1000000000\r\n\r\n";
    assert_eq!(status(Reaction::WriteForever(endless)).await, 503, "the body is not read to its end");
}

#[tokio::test]
async fn private_address_is_not_connected_even_through_a_name() {
    let server = TestServer::start(Reaction::Write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let client = client(AddressPolicy::PublicOnly);

    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let url = format!("https://{host}:{}/hooks", server.address.port());
        let error = client.post(&url, event()).await.unwrap_err();
        assert!(error.reason.contains("webhooks.private_addresses"), "{error}");
    }
    assert_eq!(server.connections(), 0);
    let error = client.post(&format!("http://{}/hooks", server.address), event()).await.unwrap_err();
    assert_eq!(error.failure_type, FailureType::Validation, "{error}");
    assert!(error.reason.contains("must be an https URL; webhooks.private_addresses permits http"), "{error}");
}

#[tokio::test]
async fn missing_response_is_a_time_out_of_the_call() {
    let server = TestServer::start(Reaction::Wait).await;
    let timeout = Duration::from_millis(200);
    let options = WebhookClientOptions { timeout, addresses: AddressPolicy::Any, ..WebhookClientOptions::default() };

    let url = format!("http://{}/hooks", server.address);
    let error = HttpWebhookClient::new(options).post(&url, event()).await.unwrap_err();

    assert_eq!(error.failure_type, FailureType::Timeout);
}

#[test]
fn url_is_absolute_and_of_a_permitted_scheme() {
    let (public, any) = (client(AddressPolicy::PublicOnly), client(AddressPolicy::Any));

    for url in ["https://example.org/hooks?token=x", "https://1.1.1.1:8443/"] {
        assert_eq!((public.check_url(url), any.check_url(url)), (Ok(()), Ok(())), "{url}");
    }
    for url in ["http://example.org/", "https://127.0.0.1/", "https://localhost/"] {
        assert!(public.check_url(url).is_err() && any.check_url(url).is_ok(), "{url}");
    }
    for url in ["", "/hooks", "ftp://example.org/", "https://u:p@example.org/", "https://", "https://a b/"] {
        assert!(public.check_url(url).is_err() && any.check_url(url).is_err(), "{url}");
    }
}
