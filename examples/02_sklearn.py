"""LDMNet as a scikit-learn classifier: in a pipeline, in a grid search, and as a transformer."""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ldmnet.integrations.sklearn import LDMClassifier


def data() -> list:
    x, y = load_digits(return_X_y=True)
    return train_test_split(x, y, train_size=300, stratify=y, random_state=0)


def main(epochs: int = 40) -> LDMClassifier:
    x, x_test, y, y_test = data()
    classifier = make_pipeline(StandardScaler(), LDMClassifier(epochs=epochs, random_state=0)).fit(x, y)
    print(f"untuned: {100 * classifier.score(x_test, y_test):.1f} % of {len(y_test)} test images")

    search = GridSearchCV(LDMClassifier(epochs=epochs // 2, random_state=0), {"hidden": [(64,), (256, 256)]}, cv=2)
    search.fit(x, y)
    print(f"the better of two networks: {search.best_params_['hidden']}")

    neighbours = KNeighborsClassifier().fit(classifier.transform(x), y)  # the features are good for others too
    print(f"5 nearest neighbours on its features: {100 * neighbours.score(classifier.transform(x_test), y_test):.1f} %")
    return classifier[-1]


if __name__ == "__main__":
    main()
