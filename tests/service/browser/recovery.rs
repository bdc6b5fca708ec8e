//! The console of a service that is killed and starts again: the page shows the outage, then continues, and the operator is still logged in.
use super::operator_page::OperatorPage;
use crate::harness::actors;
use crate::harness::backend::Backend;
use crate::harness::ports::free_port;
use crate::harness::process::Posthaste;

#[test]
fn page_and_session_continue_after_a_restart_of_the_service() {
    let backend = Backend::new();
    let address = format!("127.0.0.1:{}", free_port());
    let service = Posthaste::start(&backend, &[("POSTHASTE__HTTP__LISTEN", &address)]);
    let Some(mut page) = OperatorPage::log_in("page_and_session_continue_after_a_restart_of_the_service", &service)
    else {
        return;
    };
    page.open("/console/events");
    page.wait_for("the stream is read", "document.getElementById('stream').textContent === 'live'");
    page.evaluate("window.unchanged = true");
    drop(service);
    page.wait_for(
        "the page says that the stream is lost",
        "document.getElementById('live').textContent === 'reconnecting'",
    );
    let service = Posthaste::start(&backend, &[("POSTHASTE__HTTP__LISTEN", &address)]);

    page.wait_for("the stream is read again", "document.getElementById('stream').textContent === 'live'");
    actors::inject(&service, "/consumer-0", "panic");
    page.wait_for_text("/consumer-0 panicked");
    assert_eq!(page.evaluate("window.unchanged"), true, "the page was not loaded again");
    page.open("/console/outbox");
    page.wait_for("the operator is still logged in", "location.pathname === '/console/outbox'");
    page.wait_for_text("Logged in as root");
}
