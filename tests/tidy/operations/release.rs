//! The release builds every artefact, with the scripts of this repository; the manifests agree with the service.
use std::os::unix::fs::PermissionsExt;

use crate::source::{files, read, root};

fn workflow() -> String {
    read(&root().join(".github/workflows/release.yml"))
}

#[test]
fn the_release_builds_for_each_platform_and_publishes_every_artefact() {
    let workflow = workflow();
    let platforms = [
        "x86_64-unknown-linux-musl",
        "aarch64-unknown-linux-musl",
        "aarch64-apple-darwin",
        "x86_64-apple-darwin",
        "platforms: linux/amd64,linux/arm64",
    ];
    for platform in platforms {
        assert!(workflow.contains(platform), "no job builds {platform}");
    }
    for artefact in ["docker/package/deb.sh", "cargo cyclonedx", "sha256sum", ".tar.gz", "docker/build-push-action"] {
        assert!(workflow.contains(artefact), "no job makes {artefact}");
    }
    assert!(workflow.contains("needs: [check, linux, macos, sbom, image]"), "a failed job must publish nothing");
}

#[test]
fn every_script_of_a_workflow_exists_and_is_executable() {
    let mut workflows = Vec::new();
    files(&root().join(".github/workflows"), ".yml", &mut workflows);
    assert!(workflows.len() >= 2, "{workflows:?}");
    for path in workflows {
        let text = read(&path);
        let words = text.split([' ', '\n', '"', '\'']);
        for script in words.filter(|word| word.ends_with(".sh") || *word == ".ci/run") {
            let mode = std::fs::metadata(root().join(script)).unwrap_or_else(|error| panic!("{script}: {error}"));
            assert!(mode.permissions().mode() & 0o111 != 0, "{script} is not executable");
        }
    }
}

#[test]
fn the_image_takes_prebuilt_binaries_from_where_the_release_puts_them() {
    let (workflow, image) = (workflow(), read(&root().join("docker/Dockerfile")));
    let ignored = read(&root().join("docker/Dockerfile.dockerignore"));

    assert!(workflow.contains("build-args: BINARY=prebuilt") && image.contains("FROM scratch AS prebuilt\n"));
    assert!(image.contains("COPY dist/${TARGETARCH}/posthaste ") && ignored.contains("\n!dist\n"));
    for architecture in ["amd64", "arm64"] {
        assert!(workflow.contains(&format!("architecture: {architecture}")), "{architecture}");
    }
    assert!(workflow.contains("dist/${{ matrix.architecture }}/posthaste\n"));
}

#[test]
fn an_archive_has_the_unit_for_the_place_where_it_is_unpacked() {
    let workflow = workflow();

    let line = workflow.lines().find(|line| line.contains("docker/package/install.sh")).expect("the archive is packed");

    // A prefix inside the build folder would end up in the unit.
    assert!(line.contains("DESTDIR=\"$PWD/$name\" ") && line.ends_with(" /usr/local"), "{line}");
}

#[test]
fn the_manifests_name_the_image_of_this_version_as_the_release_does() {
    let (workflow, version) = (workflow(), env!("CARGO_PKG_VERSION"));

    assert!(workflow.contains("run: name=${GITHUB_REF_NAME#v} && echo \"tag="), "the tag of the image keeps its v");
    assert!(workflow.contains("}}:${{ steps.image.outputs.tag }}\n") && !workflow.contains(":${{ github.ref_name }}"));
    assert!(manifest("kustomization.yaml").ends_with(&format!("    newTag: {version}\n")), "not {version}");
}

fn manifest(name: &str) -> String {
    read(&root().join("docker/kubernetes").join(name))
}

#[test]
fn the_manifests_probe_what_the_service_answers_and_let_it_stop() {
    let (pods, document) = (manifest("statefulset.yaml"), api::openapi_json());
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    for (probe, path) in [("startup", "/startupz"), ("readiness", "/readyz"), ("liveness", "/livez")] {
        let wanted = format!("{probe}Probe:\n            httpGet: {{path: {path}, port: http}}\n");
        assert!(pods.contains(&wanted), "{wanted}");
        assert!(document["paths"][path].is_object(), "{path}");
    }
    let number = |text: &str, key: &str| -> u64 {
        let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_else(|| panic!("no {key}"));
        line.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    };
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let seconds = |section: &str| -> u64 {
        let text = defaults[section]["deadline"].as_str().expect("a duration");
        text.trim_end_matches('s').parse().expect("seconds")
    };
    assert!(number(&pods, "terminationGracePeriodSeconds") > seconds("shutdown"));
    let startup = pods.split("startupProbe:").nth(1).expect("a startup probe");
    assert!(number(startup, "failureThreshold") * number(startup, "periodSeconds") > seconds("startup"));
}

#[test]
fn the_manifests_select_the_pods_and_the_port_of_the_metrics() {
    let label = "{app.kubernetes.io/name: posthaste}";
    let (pods, services) = (manifest("statefulset.yaml"), manifest("service.yaml"));
    let (budget, monitor) = (manifest("disruption-budget.yaml"), manifest("service-monitor.yaml"));

    assert!(pods.contains(&format!("matchLabels: {label}")) && pods.contains(&format!("labels: {label}")));
    assert_eq!(services.matches(&format!("selector: {label}")).count(), 3);
    assert!(budget.contains(&format!("matchLabels: {label}")));
    let selected = monitor.split("matchLabels: ").nth(1).and_then(|rest| rest.lines().next()).expect("a selector");
    assert!(services.contains(&format!("labels: {selected}")), "no service has {selected}");
    assert!(monitor.contains("- port: admin\n") && services.contains("{name: admin, port: 9090, targetPort: admin}"));
    assert!(pods.contains("{name: admin, containerPort: 9090}"));
    let settings: toml::Table = manifest("posthaste.toml").parse().expect("TOML");
    assert_eq!(settings["http"]["admin_listen"].as_str(), Some("0.0.0.0:9090"));
    for file in ["statefulset.yaml", "service.yaml", "disruption-budget.yaml", "service-monitor.yaml"] {
        assert!(manifest("kustomization.yaml").contains(&format!("  - {file}\n")), "kustomization.yaml lacks {file}");
    }
}
