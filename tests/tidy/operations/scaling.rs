//! The deployment files run several instances, and give each enough time to stop.
use crate::source::{read, root};

/// The block of a top-level service of the compose file: the lines below its name.
fn service<'a>(compose: &'a str, name: &str) -> &'a str {
    let from = compose.split_once(&format!("\n  {name}:\n")).unwrap_or_else(|| panic!("no service {name}")).1;
    let is_next = |line: &str| line.starts_with("  ") && !line[2..].starts_with([' ', '#']) || !line.starts_with(' ');
    let mut length = 0;
    for line in from.split_inclusive('\n') {
        if !line.trim().is_empty() && is_next(line) {
            break;
        }
        length += line.len();
    }
    &from[..length]
}

fn has_key(service: &str, key: &str) -> bool {
    service.lines().any(|line| line.starts_with(&format!("    {key}:")))
}

#[test]
fn compose_runs_any_number_of_instances_behind_one_address() {
    let compose = read(&root().join("docker/compose.yaml"));
    let (instance, proxy) = (service(&compose, "posthaste"), service(&compose, "proxy"));
    let balanced = read(&root().join("docker/haproxy.cfg"));

    // Each of these binds an instance to something that only one can have.
    for key in ["ports", "container_name", "hostname", "volumes"] {
        assert!(!has_key(instance, key), "the service posthaste has {key}, which several instances cannot share");
    }
    for (published, inside) in [("127.0.0.1:8080", 8080), ("127.0.0.1:8081", 9090)] {
        assert!(proxy.contains(&format!("\"{published}:{inside}\"")), "the proxy does not publish {published}");
        assert!(balanced.contains(&format!("bind :{inside}\n")), "the proxy does not listen on {inside}");
        let template = balanced.lines().find(|line| line.trim_end().ends_with(&format!(" posthaste:{inside}")));
        assert!(template.is_some_and(|line| line.trim().starts_with("server-template ")), "{inside} leads nowhere");
    }
    for frontend in balanced.split("\nfrontend ").skip(1) {
        for header in ["X-Forwarded-For", "X-Forwarded-Proto"] {
            let deleted = frontend.contains(&format!("http-request del-header {header}\n"));
            assert!(deleted, "clients choose the address that the instances see: {frontend}");
        }
    }
    let listen = format!("ADMIN_LISTEN: 0.0.0.0:{}", 9090);
    assert!(instance.contains(&listen), "the instances do not listen where the proxy expects them");
}

/// Health and metrics are open to all callers, on the address for clients too: the service itself decides what each address has.
#[test]
fn proxy_passes_every_path_to_the_service() {
    let balanced = read(&root().join("docker/haproxy.cfg"));
    for refused in ["http-request deny", "http-request reject", "http-request return", "http-request tarpit"] {
        assert!(!balanced.contains(refused), "the proxy answers requests itself: {refused}");
    }
}

#[test]
fn console_is_reachable_on_instances_that_are_not_ready() {
    let balanced = read(&root().join("docker/haproxy.cfg"));
    let admin = balanced.split_once("\nbackend admin\n").expect("the backend of the console").1;
    assert!(admin.contains("    option httpchk GET /livez\n"), "the proxy checks the console by readiness: {admin}");

    let services = read(&root().join("docker/kubernetes/service.yaml"));
    let admin = services.split("\n---\n").find(|text| text.contains("\n  name: posthaste-admin\n"));
    let publishes = admin.expect("the service of the console").contains("\n  publishNotReadyAddresses: true\n");
    assert!(publishes, "a pod that is not ready has no console");
}
