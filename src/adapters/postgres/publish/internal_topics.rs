//! The topics that only the service writes, as the SQL functions know them.
use tokio_postgres::types::Type;

use crate::connection::sql_value::SqlValue;
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;

/// Stores the names of this service's internal topics, to which `posthaste.publish` then refuses events. Services with different
/// configurations overwrite each other: the one that started last decides, and the relay of each parks what its own configuration forbids.
pub(crate) async fn store(context: &StoreContext) -> StatementResult<()> {
    let text = "UPDATE installation SET internal_topics = $1 WHERE internal_topics <> $1";
    let values: [SqlValue<'_>; 1] = [(&context.options.internal_topics, Type::TEXT_ARRAY)];
    context.service_session().await?.execute(text, &values).await.map(|_| ())
}
