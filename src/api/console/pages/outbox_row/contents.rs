//! The contents of a row: its payload and the headers of its record, whatever its status.
use app::port_types::{ClaimedRow, RowId};
use app::relay::{RecordEnvelope, TopicContracts, record};
use domain::RegionId;
use maud::{Markup, html};

use crate::console::record_view::{header_table, value_view};
use crate::error::{ErrorCode, Problem};
use crate::request::context::RequestContext;

/// The event of the row; `None` if it was deleted.
pub(super) async fn event(context: &RequestContext, id: RowId) -> Result<Option<ClaimedRow>, Problem> {
    match context.state.operations.event(id).await.map_err(Problem::from) {
        Ok(event) => Ok(Some(event)),
        Err(problem) if problem.code == ErrorCode::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// The record that the row publishes.
pub(super) fn section(context: &RequestContext, event: Option<&ClaimedRow>) -> Markup {
    let region = RegionId::new(&context.state.options.region);
    html! {
        section class="card" {
            h2 { "Record" }
            @match event {
                Some(event) => (record_of(event, &region)),
                None => p class="quiet" { "The event was deleted after its retention." },
            }
        }
    }
}

fn record_of(event: &ClaimedRow, region: &RegionId) -> Markup {
    let payload = event.payload.clone().unwrap_or_else(|| [].into());
    let record = record(event, &payload, &RecordEnvelope::new(region, TopicContracts::default()));
    html! {
        p { "Topic " strong { (record.topic) } ", sequence " strong { (event.sequence) } " of its key" }
        @if event.payload.is_some() { (value_view(&payload, (None, &payload))) } @else { p class="quiet" { "The payload was deleted." } }
        (header_table(&record.headers))
    }
}
