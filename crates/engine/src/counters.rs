/// Declares a struct of counters. The sum of two structs is the sum of each counter.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $counter:ident: $of:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $counter: $of,)*
        }

        impl ::core::ops::Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($counter: self.$counter + other.$counter,)* }
            }
        }
    };
}
