"""The coordinator: opens rounds, adds up what sites answer, noises, charges, seals and publishes."""
