//! The definition of an object: its struct, its schema and how it is parsed are one list of fields.

/// Defines an object of the API: a struct, its schema, and how it is parsed. Each field is
///
/// `METHOD NAME = "KEY": TYPE as SCHEMA`
///
/// with the method of `Fields` that reads it, the key if it differs from the name, and the type in the schema if it
/// differs from that of the field. A method that takes more than the key is given with its other arguments. If the kind
/// is followed by `check`, the method of this name checks the rules that span fields.
macro_rules! model {
    // The fields are taken one by one, because the method of a field decides about its attributes. The lists are those
    // of the struct's fields, of how each is read, and of the keys that are the object's own.
    (@next $head:tt [$($fields:tt)*] [$($reads:tt)*] $own:tt
        $(#[$attribute:meta])* flatten $field:ident: $type:ty $(as $schema:ty)?, $($rest:tt)*
    ) => {
        $crate::models::fields::model! { @next $head
            [$($fields)* $(#[$attribute])* #[serde(flatten)] $(#[schema(value_type = $schema)])? pub $field: $type,]
            [$($reads)* ($field flatten [$field] [])] $own $($rest)*
        }
    };
    (@next $head:tt $fields:tt $reads:tt $own:tt
        $(#[$attribute:meta])* or_default $field:ident $(= $key:tt)?: $type:ty, $($rest:tt)*
    ) => {
        $crate::models::fields::model! { @next $head $fields $reads $own
            $(#[$attribute])* or_default $field $(= $key)?: $type as Option<$type>, $($rest)*
        }
    };
    (@next $head:tt [$($fields:tt)*] [$($reads:tt)*] [$($own:tt)*]
        $(#[$attribute:meta])* $read:ident $(($($argument:expr),+))? $field:ident $(= $key:tt)?: $type:ty $(as $schema:ty)?,
        $($rest:tt)*
    ) => {
        $crate::models::fields::model! { @next $head
            [
                $($fields)* $(#[$attribute])* $(#[serde(rename = $key)])? $(#[schema(value_type = $schema)])?
                pub $field: $type,
            ]
            [$($reads)* ($field $read [$field $($key)?] [$($(, $argument)+)?])]
            [$($own)* [$field $($key)?]]
            $($rest)*
        }
    };
    (@next [[$($attribute:tt)*] $model:ident $kind:tt [$($check:ident)?]] [$($fields:tt)*]
        [$(($field:ident $read:ident [$($key:tt)+] [$($argument:tt)*]))+] [$([$($own:tt)+])*]
    ) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, utoipa::ToSchema)]
        $($attribute)*
        pub struct $model { $($fields)* }

        impl $crate::models::Model for $model {
            const KIND: &'static str = $kind;
            const OWN: &'static [&'static str] = &[$($crate::models::fields::key!($($own)+)),*];

            fn take(fields: &mut $crate::models::Fields<'_>) -> Result<Self, $crate::models::InvalidField> {
                Ok(Self {
                    $($field: fields.$read($crate::models::fields::key!($($key)+) $($argument)*)?,)+
                })
            }

            $(
                fn check_rules(&self, fields: &$crate::models::Fields<'_>) -> Result<(), $crate::models::InvalidField> {
                    self.$check(fields)
                }
            )?
        }
    };
    ($(#[$attribute:meta])* $model:ident, $kind:expr $(, $check:ident)? => $($fields:tt)+) => {
        $crate::models::fields::model! {
            @next [[$(#[$attribute])*] $model $kind [$($check)?]] [] [] [] $($fields)+
        }
    };
}
pub(in crate::models) use model;

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(in crate::models) use key;
