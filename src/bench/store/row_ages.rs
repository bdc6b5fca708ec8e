//! Latency of rows from their commit to their settlement. Both times are by the store's clock.
use std::collections::VecDeque;

use crate::error::Error;
use crate::program::ThrowawayData;

const PAGE_ROWS_MAX: u32 = 1_000;

/// Milliseconds from the commit to the settlement of the newest rows, sorted.
pub(crate) async fn newest_rows_ms(data: &impl ThrowawayData, rows: u64) -> Result<Vec<f64>, Error> {
    let operations = data.operations().await?;
    let mut after = None;
    let mut ages = VecDeque::new();
    loop {
        let filter = app::port_types::RowFilter { after, ..Default::default() };
        let page = operations.rows(&filter, PAGE_ROWS_MAX).await.map_err(Error::new)?;
        let sent = page.rows.iter().filter_map(|row| Some(row.sent_at?.since(row.created_at).as_millis() as f64));
        ages.extend(sent);
        let surplus = ages.len().saturating_sub(rows as usize);
        ages.drain(..surplus);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut ages: Vec<f64> = ages.into();
    ages.sort_by(f64::total_cmp);
    Ok(ages)
}
