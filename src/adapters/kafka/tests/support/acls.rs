//! Permissions of a user, granted with a request of Kafka's protocol: the client library has none for them.
use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{ApiKey, CreateAclsRequest, CreateAclsResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

use super::servers;

/// The version with which the request says whether a name is a prefix.
const VERSION: i16 = 1;
/// Kafka's number for a permission that allows.
const ALLOW: i8 = 3;

/// What a permission is for.
#[derive(Clone, Copy)]
pub enum AclResource<'a> {
    Topic(&'a str),
    /// The groups with names that begin so.
    Groups(&'a str),
}

impl AclResource<'_> {
    /// Kafka's numbers for the kind of the resource and of its name, and the name.
    fn parts(&self) -> (i8, i8, &str) {
        match self {
            AclResource::Topic(name) => (2, 3, name),
            AclResource::Groups(prefix) => (3, 4, prefix),
        }
    }
}

/// An operation, by Kafka's number.
#[derive(Clone, Copy)]
pub enum AclOperation {
    Read = 3,
    Write = 4,
    Describe = 8,
    DescribeConfigs = 10,
}

/// Permits a user an operation. From its first permission on, a resource can be used only by those who have one.
pub fn permit(user: &str, resource: AclResource<'_>, operation: AclOperation) {
    let (resource_type, pattern_type, name) = resource.parts();
    let text = |value: String| StrBytes::from_string(value);
    let acl = AclCreation::default()
        .with_resource_type(resource_type)
        .with_resource_name(text(name.to_owned()))
        .with_resource_pattern_type(pattern_type)
        .with_principal(text(format!("User:{user}")))
        .with_host(text("*".to_owned()))
        .with_operation(operation as i8)
        .with_permission_type(ALLOW);
    let response = call(&CreateAclsRequest::default().with_creations(vec![acl]));
    let errors: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
    assert_eq!(errors, [0], "{response:?}");
}

fn call(request: &CreateAclsRequest) -> CreateAclsResponse {
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::CreateAcls as i16)
        .with_request_api_version(VERSION)
        .with_client_id(Some(StrBytes::from_static_str("tests")));
    let mut frame = BytesMut::new();
    header.encode(&mut frame, CreateAclsRequest::header_version(VERSION)).expect("a header");
    request.encode(&mut frame, VERSION).expect("a request");
    let mut stream = TcpStream::connect(servers()).expect("the broker accepts connections");
    stream.write_all(&(frame.len() as u32).to_be_bytes()).expect("sent");
    stream.write_all(&frame).expect("sent");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a response");
    let mut response = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut response).expect("a response");
    let mut response = Bytes::from(response);
    ResponseHeader::decode(&mut response, CreateAclsResponse::header_version(VERSION)).expect("a header");
    CreateAclsResponse::decode(&mut response, VERSION).expect("a response")
}
