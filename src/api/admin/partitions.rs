//! `GET /admin/partitions`: the partitions of the outbox with their owners.
use app::contract::rfc3339;
use app::port_types::PartitionView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, ok};

/// The list of all partitions.
#[derive(Serialize, ToSchema)]
#[schema(as = Partitions)]
pub(crate) struct PartitionList {
    partitions: Vec<PartitionBody>,
}

/// A partition of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Partition)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PartitionBody {
    #[schema(example = 7)]
    partition: u32,
    owner: Option<String>,
    /// The number of its latest lease acquisition.
    #[schema(example = 3)]
    epoch: u64,
    #[schema(example = 12)]
    counter: u64,
    /// The fencing token of the open batch.
    in_flight: Option<u64>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// The number of unsent rows.
    #[schema(example = 0)]
    depth: u64,
}

impl From<PartitionView> for PartitionBody {
    fn from(view: PartitionView) -> Self {
        Self {
            partition: view.partition.0,
            owner: view.owner.map(|owner| owner.to_string()),
            epoch: view.epoch,
            counter: view.counter,
            in_flight: view.open_batch,
            expires_at: view.expires_at.map(rfc3339),
            depth: view.depth,
        }
    }
}

/// List all outbox partitions
#[utoipa::path(get, path = "/admin/partitions", tag = "admin", operation_id = "listPartitions",
    security(("bearer" = [])),
    responses((status = 200, description = "All partitions by number", body = PartitionList)))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let partitions = context.state.operations.partitions().await?;
    Ok(ok(&PartitionList { partitions: partitions.into_iter().map(PartitionBody::from).collect() }))
}
