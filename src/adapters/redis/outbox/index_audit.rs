//! The audit of the outbox's indexes against its rows. A row is the only fact; every index follows from the rows. Scripts change both in one
//! step, so they agree until an operator edits keys, a script is cut off, or an earlier release has written rows without an index that this
//! one reads. The audit scans the rows in small pages in the background and corrects the indexes.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use ports::Error;

use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;

/// Rows of each scan in a page of the background: some two milliseconds of the server.
const PAGE_SLOW: u32 = 100;
/// Rows of each scan in a page while nothing else can use the store yet.
const PAGE_FAST: u32 = 1_000;
/// The version of the indexes that this release reads.
const INDEX_VERSION: &str = "1";
/// An auditor that is silent for this number of intervals is replaced by another instance.
const AUDITOR_TTL_INTERVALS: u32 = 5;

/// The positions from which the scans continue: one over the rows that are not SENT, by partition, and one over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AuditPosition {
    partition: u32,
    after: u64,
    history: u64,
}

struct AuditedPage {
    repairs: u64,
    next: AuditPosition,
}

impl RedisStore {
    /// Compares every row with the indexes and repairs the indexes. Returns the number of repairs. Safe while services run; large outboxes
    /// keep the server busy for as long as it runs.
    ///
    /// # Errors
    /// Fails as any write to the store does; what was repaired stays repaired.
    pub async fn audit_indexes(&self) -> Result<u64, Error> {
        let (mut position, mut repairs) = (AuditPosition::default(), 0);
        let (mut unsent_done, mut history_done) = (false, false);
        while !(unsent_done && history_done) {
            let Some(page) = self.audit_page(position, PAGE_FAST, None).await? else { continue };
            (repairs, position) = (repairs + page.repairs, page.next);
            unsent_done |= position.partition >= self.partitions();
            history_done |= position.history == 0;
        }
        self.count_repairs(repairs);
        Ok(repairs)
    }

    /// Builds the indexes of the unsent rows if an earlier release has written these without indexes.
    pub(crate) async fn build_missing_indexes(&self) -> Result<(), Error> {
        let meta = format!("{}meta", self.inner.prefix);
        let mut version = cmd("HGET");
        version.arg(&meta).arg("index_version");
        let version: Option<String> = self.read_command("index version", version).await?;
        if version.as_deref() == Some(INDEX_VERSION) {
            return Ok(());
        }
        let (mut position, mut entries) = (AuditPosition::default(), 0);
        while position.partition < self.partitions() {
            let Some(page) = self.audit_page(position, PAGE_FAST, None).await? else { continue };
            (entries, position) = (entries + page.repairs, page.next);
        }
        if entries > 0 {
            tracing::info!(
                event = "outbox_index_built",
                entries,
                "built the index of due rows for an earlier release's rows"
            );
        }
        let mut set = cmd("HSET");
        set.arg(&meta).arg("index_version").arg(INDEX_VERSION);
        self.inner.redis.inner.store_command("index version", set).await
    }

    /// Starts the task that audits a page at each interval. Of all instances one audits at a time. The task ends with the store.
    pub(crate) fn start_audit(&self, interval: Duration) {
        let store = Arc::downgrade(&self.inner);
        let task = async move {
            let mut position = AuditPosition::default();
            loop {
                tokio::time::sleep(interval).await;
                let Some(inner) = store.upgrade().filter(|inner| !inner.redis.inner.connection.is_closed()) else {
                    return;
                };
                position = RedisStore { inner }.audit_if_elected(position, interval).await;
            }
        };
        drop(tokio::spawn(task));
    }

    /// Audits one page if this instance is elected to audit; returns where to continue. A page that fails is repeated.
    async fn audit_if_elected(&self, position: AuditPosition, interval: Duration) -> AuditPosition {
        let auditor_ttl = interval.saturating_mul(AUDITOR_TTL_INTERVALS);
        match self.audit_page(position, PAGE_SLOW, Some(auditor_ttl)).await {
            Ok(Some(page)) => {
                self.count_repairs(page.repairs);
                let partition = if page.next.partition >= self.partitions() { 0 } else { page.next.partition };
                AuditPosition { partition, ..page.next }
            }
            // Another instance audits; it began at the first row.
            Ok(None) => AuditPosition::default(),
            Err(error) => {
                // A server that does not answer is reported once by its connection.
                if matches!(error, Error::Broken(_)) && self.inner.redis.inner.warnings.is_first("the audit") {
                    tracing::warn!(event = "outbox_audit_failed", error = %error, "the outbox's indexes cannot be audited");
                }
                position
            }
        }
    }

    /// Audits one page. `None` while another instance audits.
    async fn audit_page(
        &self,
        from: AuditPosition,
        rows: u32,
        auditor_ttl: Option<Duration>,
    ) -> Result<Option<AuditedPage>, Error> {
        let (boot_id, auditor_ttl) = match auditor_ttl {
            Some(auditor_ttl) => (self.boot_id(), millis(auditor_ttl).max(1).to_string()),
            None => ("", String::new()),
        };
        let arguments = ScriptArguments::new().text(boot_id).text(auditor_ttl).number(self.partitions()).number(rows);
        let arguments = arguments.number(from.partition).number(from.after).number(from.history);
        let mut reply = self.write_list("audit", &self.inner.scripts.audit, arguments).await?;
        if reply.text(0)? == "HELD" {
            return Ok(None);
        }
        let next = AuditPosition { partition: reply.number(2)?, after: reply.number(3)?, history: reply.number(4)? };
        Ok(Some(AuditedPage { repairs: reply.number(1)?, next }))
    }

    fn count_repairs(&self, repairs: u64) {
        if repairs == 0 {
            return;
        }
        if let Some(metrics) = &self.inner.redis.inner.options.metrics {
            metrics.outbox_repairs_total.inc_by(repairs);
        }
        tracing::warn!(
            event = "outbox_index_repaired",
            repairs,
            "corrected entries of the outbox's indexes by its rows"
        );
    }
}
