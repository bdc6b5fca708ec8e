#!/usr/bin/env bash
# Validates deployment files against the schemas of their formats: Kubernetes manifests, the compose file, GitHub workflows. Installs the
# validators (kubernetes-validate, check-jsonschema) with their schemas into the cache folder. Where docker compose is installed, it reads the
# compose file too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
# shellcheck source-path=SCRIPTDIR source=../../services/environment/common.sh
. tests/services/environment/common.sh
# shellcheck source-path=SCRIPTDIR source=../../services/environment/python.sh
. "$here/python.sh"

validators=$(python_environment manifest-checks tests/tidy/operations/requirements.txt)
# Prints what is wrong, and nothing else.
matches() {
  local report
  report=$("$validators/bin/check-jsonschema" "$@" 2>&1) || { printf '%s\n' "$report" >&2; return 1; }
}
for manifest in docker/kubernetes/*.yaml; do
  case $manifest in
    # Input of kubectl, not an object of a cluster: kubectl itself reads it below, where it is installed.
    */kustomization.yaml) ;;
    */service-monitor.yaml) matches --schemafile tests/tidy/operations/service-monitor.schema.json "$manifest" ;;
    *) "$validators/bin/kubernetes-validate" --strict --quiet "$manifest" ;;
  esac
done
matches --builtin-schema vendor.compose-spec docker/compose.yaml
matches --builtin-schema vendor.github-workflows .github/workflows/*.yml

if docker compose version >/dev/null 2>&1; then
  docker compose -f docker/compose.yaml config --quiet
else
  say "skipped: docker compose is not installed; the compose file was checked against its schema only"
fi
if command -v kubectl >/dev/null 2>&1; then
  kubectl kustomize docker/kubernetes >/dev/null
else
  say "skipped: kubectl is not installed; docker/kubernetes/kustomization.yaml was not built"
fi
