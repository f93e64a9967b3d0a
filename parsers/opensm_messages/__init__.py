"""What a subnet manager says, one noun a file: ports, traps, its own state, its errors, requests that time out."""
