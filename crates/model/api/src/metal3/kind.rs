//! Kinds whose `spec` is optional in upstream's schema, with or without a `status`.

/// Defines a kind of `metal3.io/v1alpha1` from its spec and status. The derive macro would require a spec, and one object without it would make a
/// watch unreadable: so these kinds do not use it.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $plural:literal, $spec:ty $(, $status:ty)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        pub struct $name {
            /// Name, namespace and the rest that all objects have.
            #[serde(default)]
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            #[serde(default)]
            pub spec: $spec,
            $(
                /// How it is; absent until a controller has seen it.
                #[serde(default)]
                pub status: Option<$status>,
            )?
        }

        impl $name {
            /// An object of this name.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    name: Some(name.to_owned()),
                    ..Default::default()
                };
                Self { metadata, spec $(, status: None::<$status>)? }
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::kube::Resource;
                use ::serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($name), 5)?;
                object.serialize_field("apiVersion", &Self::api_version(&()))?;
                object.serialize_field("kind", &Self::kind(&()))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                $(
                    if let Some(status) = &self.status {
                        object.serialize_field::<$status>("status", status)?;
                    }
                )?
                object.end()
            }
        }

        impl ::kube::Resource for $name {
            type DynamicType = ();
            type Scope = ::kube::core::NamespaceResourceScope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                "metal3.io".into()
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                "v1alpha1".into()
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(super) use kind;
