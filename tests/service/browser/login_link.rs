//! The link that `serve --dev` prints: it opens the console without a token to paste.
use std::time::Duration;

use kit::wait::until;

use super::operator_page::OperatorPage;
use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, command};

/// The link, once its line is complete.
fn complete_link(stderr: &str) -> Option<String> {
    let mut lines = stderr.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.find_map(|line| line.strip_prefix("posthaste: log in to the console: ")).map(str::to_owned)
}

#[test]
fn the_link_of_serve_dev_logs_in_and_leaves_no_token_in_the_address() {
    let backend = Backend::new();
    let mut development = command(&backend, &["serve", "--dev"]);
    let service = Posthaste::start_prepared(development.env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    let link = until("the link is printed", Duration::from_secs(20), || complete_link(&service.stderr()));
    let (page, token) = link.split_once("#token=").expect("the token stands behind the #");
    assert_eq!(page, format!("{}/console/login", service.http.base()));
    assert_eq!(service.http.get("/admin/actors", Some(token)).status, 200);
    let path = link.strip_prefix(service.http.base()).expect("the link leads to the service");

    let test = "the_link_of_serve_dev_logs_in_and_leaves_no_token_in_the_address";
    let Some(mut page) = OperatorPage::visit(test, &service, path) else { return };

    page.wait_for("the overview", "location.pathname === '/console' && !!document.querySelector('.banner')");
    page.wait_for_text("Logged in as operator");
    assert_eq!(page.evaluate("location.hash"), "");
}
