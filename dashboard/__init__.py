"""The Streamlit dashboard: it talks to the API alone."""
