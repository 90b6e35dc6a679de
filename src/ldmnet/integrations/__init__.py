"""The method in other libraries' words; each module needs the extra of its name and imports it only there."""
