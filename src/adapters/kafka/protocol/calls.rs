//! The requests that the producer sends: each with its response and the newest version that it uses.
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey, ApiVersionsRequest, ApiVersionsResponse,
    EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
    InitProducerIdResponse, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

/// A request of the protocol.
pub(crate) trait Call: Encodable + HeaderVersion {
    /// The message by which the broker answers it.
    type Response: Decodable + HeaderVersion;
    /// The key that identifies the request in its header.
    const KEY: ApiKey;
    /// The oldest version that contains what the producer needs.
    const VERSION_MIN: i16;
    /// The newest version that the producer uses. A broker takes newer versions of Produce and EndTxn for the second protocol of
    /// transactions (KIP-890), in which the epoch changes with each transaction and partitions are added implicitly; the first one is
    /// what all brokers know.
    const VERSION_MAX: i16;
}

macro_rules! calls {
    ($($request:ty => $response:ty, $key:ident, $min:literal..=$max:literal;)*) => {
        $(impl Call for $request {
            type Response = $response;
            const KEY: ApiKey = ApiKey::$key;
            const VERSION_MIN: i16 = $min;
            const VERSION_MAX: i16 = $max;
        })*
    };
}

calls! {
    // The connection asks for the versions with version 0, which every broker answers.
    ApiVersionsRequest => ApiVersionsResponse, ApiVersions, 0..=0;
    SaslHandshakeRequest => SaslHandshakeResponse, SaslHandshake, 1..=1;
    SaslAuthenticateRequest => SaslAuthenticateResponse, SaslAuthenticate, 0..=2;
    // From 4 on, the request says that no topic is to be created.
    MetadataRequest => MetadataResponse, Metadata, 4..=12;
    // From 1 on, it finds coordinators of transactions; from 4 on, it has a list of keys.
    FindCoordinatorRequest => FindCoordinatorResponse, FindCoordinator, 1..=3;
    // From 3 on, a producer raises its own epoch (KIP-360).
    InitProducerIdRequest => InitProducerIdResponse, InitProducerId, 3..=4;
    // From 4 on, it is a request between brokers.
    AddPartitionsToTxnRequest => AddPartitionsToTxnResponse, AddPartitionsToTxn, 0..=3;
    // From 8 on, the response names the invalid records of a batch (KIP-467).
    ProduceRequest => ProduceResponse, Produce, 3..=11;
    EndTxnRequest => EndTxnResponse, EndTxn, 0..=4;
}
