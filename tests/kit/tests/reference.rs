//! Every suite passes on the reference, so no suite demands the impossible.
use kit::{Reference, conformance_suite};

conformance_suite!(orders, Reference);
conformance_suite!(outbox, Reference);
conformance_suite!(events, Reference);
conformance_suite!(operators, Reference);
conformance_suite!(redrives, Reference);
conformance_suite!(webhooks, Reference);
conformance_suite!(partitions, Reference);
conformance_suite!(inbox, Reference);
conformance_suite!(broker, Reference);
conformance_suite!(consumer_groups, Reference);
conformance_suite!(topics, Reference);
conformance_suite!(idempotency, Reference);
conformance_suite!(cache, Reference);
conformance_suite!(rate_limit, Reference);
conformance_suite!(probe, Reference);
